"""Flower's strategies behind fedward's interface, and fedward's behind Flower's.

`FromFlower` lets a `flwr.serverapp.strategy.Strategy` make the next model version. fedward shows
it the averaged arrays only, as one reply: the trained model that the weighted mean says, with
the sum of the weights as its number of examples. Whoever depends on the weighted mean alone
gives what it gives in Flower; whether one does is tried out, on a small model, when the adapter
is made. Refused there, by what they do, not by name:
- strategies that need single updates (Krum, medians, trimmed means, q-FedAvg, trees, clipping on
  the server), and those that draw random numbers (noise);
- strategies whose state is more than numbers and named or listed arrays: it has to be stored;
- strategies that send other arrays than the model's, or settings that differ by node or round.
Not used of such a strategy: its choice of nodes, its evaluation, its averages of metrics. They
are the plan's and fedward's.

`ToFlower` is a Flower strategy for Flower's own SuperLink and simulation. It aggregates with
fedward's gate, combiner and strategy; nodes are chosen, evaluated and described by a Flower
`FedAvg`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.exception import AppExitException
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.exception import AggregationError
from flwr.supercore import log
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from fedward.protocol.arrays import Arrays, classify, schema_of, subtract, update_schema
from fedward.protocol.documents import ArrayRules, Scalar, WeightRules
from fedward.protocol.errors import ProtocolError
from fedward.strategies import trial
from fedward.strategies.attributes import NamedArrays, changed, flatten, names_in, restore
from fedward.strategies.base import Aggregate, ServerState, Strategy
from fedward.strategies.combiner import Combiner
from fedward.strategies.errors import NoData, StrategyError, StrategyInvalid
from fedward.strategies.gate import check_update, resolve_weight
from fedward.strategies.metrics import NUM_EXAMPLES
from fedward.strategies.steps import add_mean

SERVER_ROUND = "server-round"
"""The setting that Flower's strategies add to every message; fedward's plan does so itself."""
_INFO = 20  # logging.INFO, for Flower's log; nothing else here logs
_FAULTS = (AppExitException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a foreign strategy raises where it cannot do with what it is given."""

Replies = list[tuple[Arrays, float]]
Values = dict[str, NDArray[np.float64]]


# ---------------------------------------------------------------- Flower's behind fedward's


class FromFlower:
    """A fedward strategy that asks one of Flower's for the next model.

    Args:
        strategy: copied as it is now; not modified. It must not have been started.

    Raises:
        StrategyInvalid: it does not depend on the weighted mean alone; `reasons` says how.
    """

    def __init__(self, strategy: flower.Strategy) -> None:
        self._kind = type(strategy).__name__
        try:
            self._pristine = copy.deepcopy(strategy)
            self._given = _packed(self._pristine)
            self._kept: set[str] = set()
            self._config = self._tried()
        except _FAULTS as error:
            raise StrategyInvalid([f"strategy {self._kind}: cannot be used: {error!r}"]) from error

    @property
    def name(self) -> str:
        """`flower-` and the name of the strategy's class; not one that a plan can give."""
        return f"flower-{self._kind.lower()}"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """The strategy's own attributes that are numbers or texts."""
        return {
            name.replace("_", "-"): value
            for name, value in vars(self._pristine).items()
            if isinstance(value, bool | int | float | str)
        }

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`; the strategy is as it was given."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            StrategyError: the strategy failed, or gave other arrays than the model's.
            Overflow: a new value does not fit its array's dtype.
        """
        base = {name: state.model[name].astype(np.float64) for name in aggregate.mean}
        trained = {name: np.asarray(base[name] + mean) for name, mean in aggregate.mean.items()}
        try:
            strategy = self._revived(state.slots)
            replies: Replies = [(trained, aggregate.weight)]
            turn = _take_turn(strategy, state.version + 1, base, replies, ConfigRecord())
        except _FAULTS as error:
            raise StrategyError(f"strategy {self._kind} failed: {error!r}") from error
        steps = {name: np.asarray(value - base[name]) for name, value in turn.arrays.items()}
        model = add_mean(state.model, replace(aggregate, mean=steps))
        return ServerState(state.version + 1, model, self._slots_of(strategy))

    def client_config(self) -> dict[str, Scalar]:
        """Return the settings that the strategy adds to its messages."""
        return dict(self._config)

    def _revived(self, slots: Mapping[str, NDArray[Any]]) -> flower.Strategy:
        strategy = copy.deepcopy(self._pristine)
        for name, value in restore(slots).items():
            record = isinstance(value, NamedArrays)
            setattr(strategy, name, _record_of(value) if record else value)
        return strategy

    def _slots_of(self, strategy: flower.Strategy) -> dict[str, NDArray[Any]]:
        packed = _packed(strategy)
        for name in self._kept - names_in(packed):
            if getattr(strategy, name, None) is not None:
                raise StrategyError(f"strategy {self._kind}: {name!r} cannot be stored any more")
        slots = changed(packed, self._given)
        self._kept |= names_in(slots)
        return slots

    def _tried(self) -> dict[str, Scalar]:
        """Check on a small model that the strategy can be used; return its settings."""
        many, one = copy.deepcopy(self._pristine), copy.deepcopy(self._pristine)
        config = ConfigRecord()
        settings: list[dict[str, Any]] = []
        base: Arrays = trial.MODEL
        for number in range(1, trial.ROUNDS + 1):
            replies = trial.replies(base, number)
            expected = _take_turn(many, number, base, replies, ConfigRecord()).arrays
            turn = _take_turn(one, number, base, [trial.mean_of(replies)], config)
            settings.append(turn.config)
            self._require_equal(turn.arrays, expected, number)
            one = self._revived(self._slots_of(one))  # as if stored in between
            base = expected
        if any(setting != settings[0] for setting in settings):
            raise ValueError(f"its settings change from round to round: {settings[0]}, …")
        return settings[0]

    def _require_equal(self, got: Values, expected: Values, number: int) -> None:
        for name in expected:
            if not np.allclose(got[name], expected[name], rtol=1e-6, atol=1e-9):
                raise ValueError(
                    f"round {number} of the trial: {trial.SITES} replies and their weighted mean "
                    f"gave different models; expected a strategy that needs no single updates, "
                    "draws nothing at random, and keeps numbers and arrays only"
                )


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a Flower strategy did in a round: the new arrays, and the settings that it sent."""

    arrays: Values
    config: dict[str, Any]


def _take_turn(
    strategy: flower.Strategy,
    number: int,
    base: Arrays,
    replies: Replies,
    config: ConfigRecord,
) -> _Turn:
    """Let a Flower strategy, which is modified, send `base` and aggregate `replies`.

    Raises:
        ValueError: it sent or gave something else than arrays of the names and shapes of `base`.
    """
    _require_identity()
    if hasattr(strategy, "train_metrics_aggr_fn"):  # fedward averages metrics itself
        strategy.train_metrics_aggr_fn = _no_metrics
    messages = strategy.configure_train(number, _record_of(base), config, _nodes_for(strategy))
    sent = [_settings(message, base) for message in messages]
    if any(settings != sent[0] for settings in sent):
        raise ValueError("its settings differ from node to node")
    key = getattr(strategy, "weighted_by_key", NUM_EXAMPLES)
    answers = [_reply(arrays, weight, key) for arrays, weight in replies]
    record, _ = strategy.aggregate_train(number, answers)
    if record is None:
        raise ValueError(f"it made no model of {len(replies)} replies")
    return _Turn(_checked(_values(record), base), sent[0] if sent else {})


def _no_metrics(_records: list[RecordDict], _weighted_by: str) -> MetricRecord:
    return MetricRecord()


def _checked(got: Arrays, base: Arrays) -> Values:
    shapes = {name: array.shape for name, array in got.items()}
    expected = {name: array.shape for name, array in base.items()}
    if shapes != expected:
        raise ValueError(
            f"got arrays of shapes {str(shapes)[:300]}, expected {str(expected)[:300]}"
        )
    return {name: np.asarray(got[name], np.float64) for name in base}


def _settings(message: Message, base: Arrays) -> dict[str, Any]:
    for record in message.content.array_records.values():
        sent = _checked(_values(record), base)
        if not all(np.array_equal(sent[name], base[name]) for name in base):
            raise ValueError("it sends other arrays than the model's")
    settings = {
        name: value
        for record in message.content.config_records.values()
        for name, value in record.items()
        if name != SERVER_ROUND
    }
    for name, value in settings.items():
        if not isinstance(value, bool | int | float | str):
            raise ValueError(  # noqa: TRY004  the strategy's fault, not the caller's
                f"setting {name!r}: got {type(value).__name__}, expected a number or a text"
            )
    return settings


def _reply(arrays: Arrays, weight: float, key: str) -> Message:
    content = RecordDict({"arrays": _record_of(arrays), "metrics": MetricRecord({key: weight})})
    return Message(content, dst_node_id=TaskIdentity.node_id, message_type="train")


def _require_identity() -> None:
    """Let this process make messages: Flower refuses that outside of its own tasks."""
    try:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id  # noqa: B018
    except RuntimeError:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def _nodes_for(strategy: flower.Strategy) -> Grid:
    wanted = [
        value
        for name, value in vars(strategy).items()
        if name.startswith("min_") and name.endswith("_nodes") and isinstance(value, int)
    ]
    return cast(Grid, trial.Nodes(max([1, *wanted])))  # as much of one as choosing takes


# ---------------------------------------------------------------- fedward's behind Flower's


class ToFlower(flower.Strategy):
    """A Flower strategy that makes the next model as fedward's coordinator does.

    A reply that the gate refuses (a name, dtype or shape that differs, a value that is not
    finite, a number of examples that is not believed) is logged by its reason and left out.
    Replies are combined in the order of node ids: their order of arrival changes no bit.

    Args:
        strategy: what makes the next model.
        sampling: chooses nodes, averages metrics and names the records; all nodes by default.
        arrays: which arrays stay as they are, or are counted. Replies hold the local ones too;
            they are not used.
        weights: how replies are weighted.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        sampling: flower.FedAvg | None = None,
        arrays: ArrayRules | None = None,
        weights: WeightRules | None = None,
    ) -> None:
        self.strategy = strategy
        self.sampling = sampling or flower.FedAvg()
        self._arrays = arrays or ArrayRules()
        self._weights = weights or WeightRules()
        self._state: ServerState | None = None

    @property
    def state(self) -> ServerState | None:
        """The newest model and the optimiser's slots; None before the first round."""
        return self._state

    def summary(self) -> None:
        """Log the strategy and its parameters, and how nodes are chosen."""
        log(_INFO, "\t├──> fedward's %s: %s", self.strategy.name, dict(self.strategy.parameters))
        self.sampling.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Take `arrays` as the model and send it with the strategy's settings."""
        model = _values(arrays)
        if self._state is None:
            self._state = self.strategy.init(model)
        else:
            self._state = replace(self._state, model=model)
        for name, value in self.strategy.client_config().items():
            config[name] = value
        return self.sampling.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the mean metrics, or None for both without data.

        Raises:
            AggregationError: called before `configure_train`, or the next model cannot be
                made of the updates.
        """
        if self._state is None:
            raise AggregationError("no model: configure_train has not been called")
        schema = schema_of(self._state.model)
        combiner = Combiner(schema, classify(schema, self._arrays), counted=self._arrays.counted)
        used = [
            reply.content
            for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id)
            if self._is_added(reply, combiner, self._state.model)
        ]
        log(_INFO, "aggregate_train: %s replies used in round %s", len(used), server_round)
        try:
            self._state = self.strategy.apply(self._state, combiner.result())
        except NoData:
            return None, None
        except StrategyError as error:
            raise AggregationError(f"{error.reason}: {error}") from error
        metrics = self.sampling.train_metrics_aggr_fn(used, self.sampling.weighted_by_key)
        return _record_of(self._state.model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model for evaluation, as `sampling` does."""
        return self.sampling.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the mean metrics, as `sampling` works them out."""
        return self.sampling.aggregate_evaluate(server_round, replies)

    def _is_added(self, reply: Message, combiner: Combiner, model: Arrays) -> bool:
        """Add a reply to `combiner`, or log why not."""
        node = reply.metadata.src_node_id
        if reply.has_error():
            log(_INFO, "\t> node %s failed: %s", node, reply.error.reason)
            return False
        try:
            update, weight = self._update_of(reply.content, model)
            combiner.add(update, weight=weight)
        except (ProtocolError, StrategyError, ValueError) as error:
            log(_INFO, "\t> the reply of node %s is left out: %s", node, error)
            return False
        return True

    def _update_of(self, content: RecordDict, model: Arrays) -> tuple[Arrays, float]:
        arrays = list(content.array_records.values())
        metrics = list(content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            got = f"{len(arrays)} ArrayRecords and {len(metrics)} MetricRecords"
            raise ValueError(f"got {got}, expected one each")
        count = metrics[0].get(self.sampling.weighted_by_key)
        if isinstance(count, list):
            raise ValueError(f"{self.sampling.weighted_by_key}: got a list, expected a number")  # noqa: TRY004  the sender's fault
        schema = schema_of(model)
        classes = classify(schema, self._arrays)
        update = subtract(_values(arrays[0]), model, classes)
        check_update(update, update_schema(schema, classes))
        return update, resolve_weight(count, self._weights)


# ---------------------------------------------------------------- records


def _packed(strategy: flower.Strategy) -> dict[str, NDArray[Any]]:
    """Return what can be stored of a strategy's attributes."""
    return flatten(
        {
            name: NamedArrays(_values(value)) if isinstance(value, ArrayRecord) else value
            for name, value in vars(strategy).items()
        }
    )


def _values(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def _record_of(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
