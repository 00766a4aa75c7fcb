"""`call_app` with real ClientApps in this process."""

import warnings

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict

from fedward.client.errors import TaskFailed
from fedward.client.flower import Call, call_app, flatten, fuse_config, load_bundle
from fedward.protocol.documents import TaskFailure, TaskKind

MODEL = {"w": np.array([1.0, 2.0], dtype=np.float32), "n": np.array(3, dtype=np.int64)}


def make_call(kind=TaskKind.TRAIN, *, action=None, config=None, run_config=None, node_config=None):
    return Call(
        kind=kind,
        action=action,
        config={"server-round": 2} if config is None else config,
        run_config=run_config or {},
        node_config=node_config or {},
        run_id=11,
        node_id=22,
    )


def answering(records, *, kind="train"):
    app = ClientApp()

    @getattr(app, kind)()
    def handle(message, context):
        return Message(RecordDict(records), reply_to=message)

    return app


def call(app, work=None, *, state=None):
    return call_app(app, work or make_call(), arrays=MODEL, state=state or RecordDict())


def failure_of(app, work=None):
    with pytest.raises(TaskFailed) as caught:
        call(app, work)
    return caught.value


def test_the_app_sees_message_and_context_as_under_flower():
    app, seen = ClientApp(), {}

    @app.train()
    def train(message, context):
        seen.update(
            metadata=message.metadata, content=message.content, context=context,
            reply=Message(RecordDict({"a": ArrayRecord([np.zeros(1)])}), reply_to=message),
        )  # fmt: skip
        return seen["reply"]

    call(app, make_call(run_config={"lr": 0.1}, node_config={"partition-id": 4}))
    assert list(seen["content"]) == ["arrays", "config"]
    assert dict(seen["content"]["config"]) == {"server-round": 2}
    assert (seen["metadata"].run_id, seen["metadata"].dst_node_id) == (11, 22)
    assert (seen["metadata"].group_id, seen["metadata"].message_type) == ("2", "train")
    assert seen["context"].run_config == {"lr": 0.1}
    assert seen["context"].node_config == {"partition-id": 4}
    assert seen["reply"].metadata.src_node_id == 22
    assert seen["reply"].metadata.reply_to_message_id == seen["metadata"].message_id


def test_train_returns_arrays_metrics_and_weight():
    records = {
        "arrays": ArrayRecord({"w": ArrayRecord([np.ones(2)])["0"]}),
        "metrics": MetricRecord({"num-examples": 5, "loss": 0.25, "curve": [1.0, 0.5]}),
    }
    reply = call(answering(records))
    assert reply.arrays["w"].tolist() == [1.0, 1.0]
    assert reply.metrics == {"num-examples": 5, "loss": 0.25, "curve": [1.0, 0.5]}
    assert reply.num_examples == 5


def test_a_list_of_arrays_gets_the_received_names_back_by_position():
    reply = call(answering({"a": ArrayRecord([np.zeros(2), np.array(9)])}))
    assert list(reply.arrays) == ["w", "n"]
    assert reply.arrays["n"] == 9
    assert reply.num_examples is None


def test_a_reply_in_another_order_is_put_in_the_received_order():
    both = ArrayRecord([np.array(9), np.zeros(2)])
    reply = call(answering({"a": ArrayRecord({"n": both["0"], "w": both["1"]})}))
    assert list(reply.arrays) == ["w", "n"]


def test_foreign_names_are_left_for_the_schema_check():
    reply = call(answering({"a": ArrayRecord([np.zeros(2)])}))
    assert list(reply.arrays) == ["0"]


def test_queries_reach_the_named_action():
    app = ClientApp()

    @app.query("statistics")
    def statistics(message, context):
        return Message(RecordDict({"m": MetricRecord({"num-examples": 4})}), reply_to=message)

    reply = call_app(
        app, make_call(TaskKind.QUERY, action="statistics"), arrays=None, state=RecordDict()
    )
    assert (reply.arrays, reply.num_examples) == (None, 4)


def test_mods_and_lifespan_run_around_the_app():
    steps = []

    def mod(message, context, call_next):
        steps.append("mod in")
        reply = call_next(message, context)
        steps.append("mod out")
        return reply

    app = ClientApp(mods=[mod])

    @app.lifespan()
    def lifespan(context):
        steps.append("start")
        yield
        steps.append("end")

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": MetricRecord({"loss": 1.0})}), reply_to=message)

    call(app, make_call(TaskKind.EVALUATE))
    assert steps == ["start", "mod in", "mod out", "end"]


def test_state_persists_and_may_be_replaced():
    app = ClientApp()

    @app.evaluate()
    def evaluate(message, context):
        count = context.state["c"]["n"] + 1 if "c" in context.state else 1
        context.state = RecordDict({"c": ConfigRecord({"n": count})})
        return Message(RecordDict(), reply_to=message)

    work = make_call(TaskKind.EVALUATE)
    state = call(app, work).state
    assert call(app, work, state=state).state["c"]["n"] == 2


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ({}, "0 ArrayRecords"),
        ({"a": ArrayRecord([np.zeros(1)]), "b": ArrayRecord()}, "2 ArrayRecords"),
        (
            {"a": ArrayRecord(), "m": MetricRecord({"x": 1}), "n": MetricRecord({"y": 1})},
            "2 MetricRecords",
        ),
        ({"a": ArrayRecord(), "m": MetricRecord({"num-examples": [3]})}, "list as num-examples"),
        ({"a": ArrayRecord(), "m": MetricRecord({"": 3})}, "name of 0"),
        (
            {"a": ArrayRecord(), "m": MetricRecord({str(i): i for i in range(257)})},
            "257 metrics",
        ),
    ],
)
def test_a_reply_that_cannot_be_used_is_refused(records, reason):
    error = failure_of(answering(records))
    assert error.failure is TaskFailure.REPLY_INVALID
    assert reason in str(error)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("-inf")]])
def test_a_metric_that_is_not_finite_is_refused_by_name(value):
    app = answering({"a": ArrayRecord(), "m": MetricRecord({"loss": value})})
    error = failure_of(app)
    assert error.failure is TaskFailure.NON_FINITE
    assert "'loss'" in str(error)


def test_a_reply_that_is_no_message_or_an_error_is_refused():
    app = ClientApp()
    replies = {"train": lambda m: {"loss": 1}, "evaluate": lambda m: Message(Error(3), reply_to=m)}
    app.train()(lambda message, context: replies["train"](message))
    app.evaluate()(lambda message, context: replies["evaluate"](message))
    assert failure_of(app).failure is TaskFailure.REPLY_INVALID
    error = failure_of(app, make_call(TaskKind.EVALUATE))
    assert error.failure is TaskFailure.APP_RAISED


def test_mixed_numbers_in_a_list_become_floats():
    app, seen = ClientApp(), {}

    @app.evaluate()
    def evaluate(message, context):
        seen.update(message.content["config"])
        return Message(RecordDict(), reply_to=message)

    config = {"means": [1, 2.5], "counts": [1, 2], "names": ["a"], "on": True}
    call(app, make_call(TaskKind.EVALUATE, config=config))
    assert seen["means"] == [1.0, 2.5]
    assert [type(v) for v in seen["means"]] == [float, float]
    assert (seen["counts"], seen["names"], seen["on"]) == ([1, 2], ["a"], True)


class Adder(NumPyClient):
    def fit(self, parameters, config):
        step = config["server-round"]
        return [p + p.dtype.type(step) for p in parameters], 7, {"loss": 0.5, "note": "text"}

    def evaluate(self, parameters, config):
        return float(parameters[0].sum()), 3, {"accuracy": 0.75}


def legacy_app(client=Adder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ClientApp(client_fn=lambda context: client().to_client())


def test_a_legacy_client_fn_trains_with_names_and_dtypes_kept():
    work = make_call(config={"server-round": 2, "prepared.feature-mean": [1.0]})
    reply = call(legacy_app(), work)
    assert list(reply.arrays) == ["w", "n"]
    assert reply.arrays["w"].tolist() == [3.0, 4.0]
    assert (reply.arrays["n"].dtype, reply.arrays["n"].shape) == (np.int64, ())
    assert reply.metrics == {"loss": 0.5, "num-examples": 7}


def test_a_legacy_client_fn_evaluates():
    reply = call(legacy_app(), make_call(TaskKind.EVALUATE))
    assert reply.metrics == {"loss": 3.0, "accuracy": 0.75, "num-examples": 3}
    assert reply.arrays is None


def test_a_legacy_client_without_fit_is_a_failure():
    class Silent(NumPyClient):
        pass

    assert failure_of(legacy_app(Silent)).failure is TaskFailure.APP_RAISED


def test_settings_are_fused_over_the_apps_own_and_keep_their_type():
    fused = fuse_config({"lr": 0.1, "epochs": 1, "on": False}, {"lr": 1, "epochs": 3, "on": True})
    assert fused == {"lr": 1.0, "epochs": 3, "on": True}
    assert type(fused["lr"]) is float
    with pytest.raises(TaskFailed, match="'epoch'") as caught:
        fuse_config({"epochs": 1}, {"epoch": 3})
    assert caught.value.failure is TaskFailure.PLAN_INVALID


def test_nested_settings_are_flattened_as_flower_does():
    nested = {"lr": 0.5, "net": {"width": 3, "act": {"name": "relu"}}, "on": True, "none": {}}
    assert flatten(nested) == flatten_dict(nested)


BROKEN = {
    "": "no Flower app's",
    "[tool.flwr.app": "no Flower app's",
    '[tool.flwr.app.components]\nclientapp = "nowhere"': "Missing attribute",
    '[tool.flwr.app.components]\nclientapp = "json:dumps"': "got a function",
    '[tool.flwr.app.components]\nclientapp = "json:missing.deep"': "Unable to load attribute",
    '[tool.flwr.app.components]\nclientapp="a:b"\n[tool.flwr.app.config]\na=[1]': "setting a: got",
}


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_folder_that_is_no_flower_app_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setattr("sys.path", ["/nowhere"])
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(TaskFailed, match=BROKEN[text]) as caught:
        load_bundle(tmp_path, clientapp=None)
    assert caught.value.failure is TaskFailure.APP_INVALID


def test_a_bundle_is_loaded_with_its_nested_settings_flattened(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nclientapp = "bundle_probe:wrapper.app"\n'
        "[tool.flwr.app.config]\nlr = 0.5\n[tool.flwr.app.config.net]\nwidth = 3\n"
    )
    (tmp_path / "bundle_probe.py").write_text(
        "from flwr.clientapp import ClientApp\nclass wrapper:\n    app = ClientApp()\n"
    )
    loaded = load_bundle(tmp_path, clientapp=None)
    assert loaded.config == {"lr": 0.5, "net.width": 3}
    assert isinstance(loaded.app, ClientApp)
