"""`Coordinator`: everything that the API, the command line and the scheduler may ask for.

All methods are synchronous and thread-safe; call them from threads (`asyncio.to_thread`). Each
changes the state in one transaction at most: state, audit records, tree nodes and timers are
stored together or not at all, and wake-ups follow the commit. What was not allowed is recorded
in a transaction of its own. Rules live in the modules that are called here.

Lists take `after` (the `next` of the page before) and `limit` (1 to 500). Every method may
raise `Unavailable` (nothing changed); methods that name an object raise `NotFound`.
"""

from collections.abc import Callable
from pathlib import Path

from fedward.coordinator import (
    access,
    apps,
    audit_service,
    denials,
    lifecycle,
    models,
    plan_service,
    results,
    run_views,
    runs,
    sites,
    studies,
    tasks,
    views,
)
from fedward.coordinator.access import StoredAnswer
from fedward.coordinator.actors import Actor
from fedward.coordinator.blobs import Blobs
from fedward.coordinator.context import Context, Denial
from fedward.coordinator.notify import Notifier
from fedward.coordinator.store.unit_of_work import Store
from fedward.protocol.documents import (
    Enrolment,
    Membership,
    Plan,
    ResultReceipt,
    Study,
    Task,
    TaskResult,
    UploadState,
)
from fedward.protocol.signatures import PrivateKey


class Coordinator:
    """The service. `clock` returns seconds since the epoch, `token_bytes` secure random bytes."""

    def __init__(  # noqa: PLR0917 (made once; every argument has its own type)
        self,
        store: Store,
        blobs: Blobs,
        notifier: Notifier,
        key: PrivateKey,
        clock: Callable[[], float],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self._context = Context(store, blobs, notifier, key, clock, token_bytes)
        self._started = False

    @property
    def context(self) -> Context:
        """What the scheduler works with."""
        return self._context

    @property
    def notifier(self) -> Notifier:
        """Topics `site:<slug>` (there may be a task) and `run:<id>` (something changed)."""
        return self._context.notifier

    def start(self) -> None:
        """Recover and record the start; the scheduler calls it, a second call does nothing."""
        if not self._started:
            lifecycle.start(self._context)
            self._started = True

    def stop(self) -> None:
        """Record an orderly stop."""
        lifecycle.stop(self._context)

    def check_ready(self) -> None:
        """Raise `Unavailable` where the database cannot be read."""
        lifecycle.check_ready(self._context)

    # ------------------------------------------------------------ studies

    def create_study(self, actor: Actor, study: Study) -> views.StudyView:
        """Create a study; the same one again is answered alike. Raises Conflict."""
        return studies.create(self._context, actor, study=study)

    def list_studies(
        self, *, after: str | None = None, limit: int = 100
    ) -> views.Page[views.StudyView]:
        """Return studies by name."""
        return studies.page(self._context, after=after, limit=limit)

    def show_study(self, study: str) -> views.StudyView:
        """Return one study."""
        return studies.show(self._context, study)

    def close_study(self, actor: Actor, study: str) -> views.StudyView:
        """Close a study for good and stop its runs."""
        return studies.close(self._context, actor, study=study)

    # ------------------------------------------------------------ apps

    def add_app(self, actor: Actor, data: bytes) -> views.AppView:
        """Keep a zip of a Flower app directory; adding it twice changes nothing.

        Raises:
            UpdateRefused: `invalid-app`; the detail says what is wrong with which file.
            LimitExceeded: too large, packed or unpacked.
        """
        return apps.add(self._context, actor, data=data)

    def list_apps(self, *, after: str | None = None, limit: int = 100) -> views.Page[views.AppView]:
        """Return apps by digest."""
        return apps.page(self._context, after=after, limit=limit)

    def show_app(self, digest: str) -> views.AppView:
        """Return one app."""
        return apps.show(self._context, digest)

    # ------------------------------------------------------------ models

    def add_model(self, actor: Actor, path: Path) -> views.ModelView:
        """Copy a safetensors file into the store; adding it twice changes nothing.

        Raises:
            InvalidArrays: (protocol) the file is malformed or holds a NaN or an infinity.
        """
        return models.add(self._context, actor, path=path)

    def list_models(
        self, run: str | None = None, *, after: str | None = None, limit: int = 100
    ) -> views.Page[views.ModelView]:
        """Return a run's versions by round, or all models by digest; without `arrays`."""
        return models.page(self._context, run, after=after, limit=limit)

    def show_model(self, digest: str) -> views.ModelView:
        """Return one model with its arrays."""
        return models.show(self._context, digest)

    def model_lineage(self, digest: str) -> list[views.ModelView]:
        """Return the model and its ancestors, newest first, down to an uploaded one."""
        return models.lineage(self._context, digest)

    def open_model(self, actor: Actor, digest: str) -> Path:
        """Return the file to send; the read is recorded."""
        return models.open_file(self._context, actor, digest=digest)

    # ------------------------------------------------------------ plans

    def validate_plan(self, plan: Plan) -> views.PlanCheck:
        """Return all that would be refused; changes nothing."""
        return plan_service.validate(self._context, plan)

    def submit_plan(self, actor: Actor, plan: Plan) -> views.PlanView:
        """Keep a plan under its digest; the same plan again is answered alike.

        Raises:
            PlanRefused: with all reasons.
        """
        return plan_service.submit(self._context, actor, plan=plan)

    def list_plans(
        self, *, after: str | None = None, limit: int = 100
    ) -> views.Page[views.PlanView]:
        """Return plans by digest."""
        return plan_service.page(self._context, after=after, limit=limit)

    def show_plan(self, digest: str) -> views.PlanView:
        """Return one plan."""
        return plan_service.show(self._context, digest)

    # ------------------------------------------------------------ runs

    def create_run(self, actor: Actor, plan: str) -> views.RunView:
        """Draft a run of the plan with this digest; every call makes another run.

        Raises:
            PlanRefused: the plan could not be submitted today (its study is closed …).
        """
        return runs.create(self._context, actor, plan_digest=plan)

    def start_run(self, actor: Actor, run: str) -> views.RunView:
        """Start a draft. Raises EventRefused."""
        return runs.start(self._context, actor, run=run)

    def pause_run(self, actor: Actor, run: str) -> views.RunView:
        """Hand out no further task. Raises EventRefused."""
        return runs.pause(self._context, actor, run=run)

    def resume_run(self, actor: Actor, run: str) -> views.RunView:
        """Go on after a pause. Raises EventRefused."""
        return runs.resume(self._context, actor, run=run)

    def stop_run(self, actor: Actor, run: str) -> views.RunView:
        """End the run for good. Raises EventRefused."""
        return runs.stop(self._context, actor, run=run)

    def list_runs(self, *, after: str | None = None, limit: int = 100) -> views.Page[views.RunView]:
        """Return runs, newest first."""
        return run_views.page(self._context, after=after, limit=limit)

    def show_run(self, run: str) -> views.RunView:
        """Return a run's progress."""
        return run_views.show(self._context, run)

    def list_rounds(
        self, run: str, *, after: int | None = None, limit: int = 100
    ) -> views.Page[views.RoundView]:
        """Return rounds in order, without tasks; `next` is the last round's number as text."""
        return run_views.rounds(self._context, run, after=after, limit=limit)

    def show_round(self, run: str, number: int) -> views.RoundView:
        """Return one round with its tasks."""
        return run_views.show_round(self._context, run, number=number)

    def run_events(
        self, run: str, *, after_seq: int = 0, limit: int = 100
    ) -> list[views.AuditEventView]:
        """Return the run's audit records after `after_seq`, for a progress stream."""
        return audit_service.run_events(self._context, run, after_seq=after_seq, limit=limit)

    # ------------------------------------------------------------ sites

    def invite_site(
        self, actor: Actor, site: str, *, organisation: str, ttl_s: float = 72 * 3600.0
    ) -> views.Invite:
        """Invite a site; earlier unused invites of it end. Raises Conflict when it is enrolled."""
        return sites.invite(self._context, actor, site=site, organisation=organisation, ttl_s=ttl_s)

    def list_sites(
        self, *, after: str | None = None, limit: int = 100
    ) -> views.Page[views.SiteView]:
        """Return sites by name."""
        return sites.page(self._context, after=after, limit=limit)

    def show_site(self, site: str) -> views.SiteView:
        """Return one site."""
        return sites.show(self._context, site)

    def revoke_site(self, actor: Actor, site: str) -> views.SiteView:
        """Refuse the site from now on and take its pending tasks away."""
        return sites.revoke(self._context, actor, site=site)

    # ------------------------------------------------------------ tokens, denials, idempotency

    def create_token(self, actor: Actor, name: str, *, role: str, ttl_s: float) -> views.NewToken:
        """Make an API token; the secret is in this answer only."""
        return access.create_token(self._context, actor, name=name, role=role, ttl_s=ttl_s)

    def list_tokens(
        self, *, after: str | None = None, limit: int = 100
    ) -> views.Page[views.TokenView]:
        """Return tokens by id."""
        return access.page(self._context, after=after, limit=limit)

    def revoke_token(self, actor: Actor, token: str) -> views.TokenView:
        """Refuse the token from now on."""
        return access.revoke_token(self._context, actor, token=token)

    def authenticate_token(self, secret: str) -> Actor:
        """Return who holds the token. Raises NotAuthenticated; failures are recorded."""
        return access.authenticate(self._context, secret)

    def bootstrap_token(self) -> str | None:
        """Return the secret of a new admin token, None while a valid one exists."""
        return access.bootstrap_token(self._context)

    def record_denial(self, actor: Actor, action: str, *, reason: str) -> None:
        """Record that `actor` was not let do `action`, or (ANONYMOUS) could not be identified.

        Both are stable names (`studies.create`, `role-lacks-permission`). Floods are counted.
        """
        denials.record(self._context, Denial(actor, action, reason))

    def call_once(
        self, actor: Actor, key: str, *, request_digest: str, call: Callable[[], StoredAnswer]
    ) -> StoredAnswer:
        """Perform `call` and keep its answer in the same transaction; a repeat gets the first.

        An answer with a secret is marked `shown_once` and not kept: its repeat is a Conflict.
        `add_app` and `add_model` need no key (they are idempotent by content): do not call them
        in here, they read large files.

        Raises:
            Conflict: `idempotency-key-reused` for another request, or `answer-shown-once`.
        """
        return access.call_once(
            self._context, actor, key=key, request_digest=request_digest, call=call
        )

    # ------------------------------------------------------------ audit log

    def audit_events(
        self, actor: Actor, *, after_seq: int = 0, limit: int = 100, run: str | None = None
    ) -> list[views.AuditEventView]:
        """Return records in order; the read is itself recorded (and not in the answer)."""
        return audit_service.events(self._context, actor, after_seq=after_seq, limit=limit, run=run)

    def audit_head(self) -> views.AuditHead:
        """Return the size and root of the log."""
        return audit_service.head(self._context)

    def audit_inclusion(self, seq: int, *, size: int | None = None) -> views.InclusionProof:
        """Prove that record `seq` is in the tree of `size` (default: the newest)."""
        return audit_service.inclusion(self._context, seq, size=size)

    def audit_consistency(self, first: int, *, second: int | None = None) -> views.ConsistencyProof:
        """Prove that the log of size `first` is a prefix of the one of size `second`."""
        return audit_service.consistency(self._context, first, second=second)

    def verify_audit(self) -> views.AuditCheck:
        """Recompute every hash and every node from the stored bytes."""
        return audit_service.verify(self._context)

    # ------------------------------------------------------------ agents

    def enrol(self, enrolment: Enrolment, *, key_id: str) -> Membership:
        """Enrol the site of the invite with the key that signed the request (`key_id`).

        The same key with the same invite again is answered alike.

        Raises:
            NotAuthenticated: the invite is unknown, used or expired, or `key_id` is not the id
                of the announced key.
            NotAllowed: `protocol-unsupported`.
        """
        return sites.enrol(self._context, enrolment, key_id=key_id)

    def find_site_key(self, key_id: str) -> bytes | None:
        """Return the 32 bytes of the public key of a site, enrolled or revoked."""
        return sites.find_key(self._context, key_id)

    def admit(self, key_id: str, nonce: str, *, created: float) -> str:
        """Return the site of a verified request, once per nonce.

        Raises:
            NotAuthenticated: `site-revoked`, `unknown-key` or `replayed-request`.
        """
        return sites.admit(self._context, key_id, nonce=nonce, created=created)

    def next_task(self, site: str) -> Task | None:
        """Lease the site's next task, None where there is none now.

        A task that the site has already is leased anew under a higher fence. To wait, take
        `notifier.version(topic)` before this call and pass it to `notifier.wait`.
        """
        return tasks.next_task(self._context, site)

    def note_progress(self, site: str, task: str, *, fence: int) -> None:
        """Note a sign of life. Raises EventRefused (`stale-fence`, `round-closed`)."""
        tasks.note_progress(self._context, site, task=task, fence=fence)

    def upload_state(self, site: str, task: str, *, fence: int) -> UploadState:
        """Return how much of the update has arrived. Raises EventRefused."""
        return tasks.upload_state(self._context, site, task=task, fence=fence)

    def append_chunk(
        self, site: str, task: str, *, fence: int, offset: int, data: bytes
    ) -> UploadState:
        """Append a chunk at `offset`.

        Raises:
            OffsetMismatch: (EventRefused) `offset` is not what has arrived; see `.received_bytes`.
            LimitExceeded: larger than an update of this plan can be.
        """
        return tasks.append_chunk(
            self._context, site, task=task, fence=fence, offset=offset, data=data
        )

    def submit_result(self, site: str, task: str, *, result: TaskResult) -> ResultReceipt:
        """Check and record a result; the same result again gets the same receipt.

        A refusal is a receipt with `accepted=False` and its reason, never an exception.
        """
        return results.submit(self._context, site, task=task, result=result)

    def open_blob(self, site: str, digest: str) -> Path:
        """Return a plan, model or bundle of a run that the site takes part in."""
        return tasks.open_blob(self._context, site, digest=digest)

    def count_sent(self, site: str, digest: str, *, size_bytes: int) -> None:
        """Add to `bytes_down` of the run; call it when a blob (or a range of it) was sent."""
        tasks.count_sent(self._context, site, digest=digest, size_bytes=size_bytes)
