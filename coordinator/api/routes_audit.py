"""The audit log: records, head, proofs, verification: /api/v1/audit."""

from typing import Annotated

from fastapi import APIRouter, Query

from fedward.coordinator import views
from fedward.coordinator.api.requests import AfterSeq, Limit, Number
from fedward.coordinator.api.state import API_TOKEN, CurrentActor, Service
from fedward.coordinator.api.strict_route import OperatorRoute
from fedward.protocol.documents import Identifier

router = APIRouter(
    prefix="/api/v1/audit", route_class=OperatorRoute, dependencies=[API_TOKEN], tags=["audit"]
)

Sequence = Annotated[Number, Query(ge=1, description="sequence number of a record, from 1")]
Size = Annotated[Number | None, Query(ge=1, description="size of a tree; the newest if left out")]


@router.get("/events")
def audit_events(
    service: Service,
    actor: CurrentActor,
    after: AfterSeq = 0,
    limit: Limit = 100,
    run: Annotated[Identifier | None, Query(description="records of this run only")] = None,
) -> views.Page[views.AuditEventView]:
    """Return records in order; reading them is itself recorded."""
    events = service.audit_events(actor, after_seq=after, limit=limit, run=run)
    return views.Page(items=events, next=str(events[-1].seq) if len(events) == limit else None)


@router.get("/head")
def audit_head(service: Service) -> views.AuditHead:
    """Return the size and root of the log."""
    return service.audit_head()


@router.get("/proof")
def audit_proof(service: Service, seq: Sequence, size: Size = None) -> views.InclusionProof:
    """Prove that a record is in the log."""
    return service.audit_inclusion(seq, size=size)


@router.get("/consistency")
def audit_consistency(
    service: Service,
    first: Annotated[Number, Query(ge=1, description="size of the earlier tree")],
    second: Size = None,
) -> views.ConsistencyProof:
    """Prove that the log only grew between two sizes."""
    return service.audit_consistency(first, second=second)


@router.get("/verify")
def verify_audit(service: Service) -> views.AuditCheck:
    """Recompute every hash and node from the stored bytes."""
    return service.verify_audit()
