"""Liveness and readiness; without authentication, and saying nothing else."""

from fastapi import APIRouter

from fedward.coordinator.api.state import Service
from fedward.protocol.documents import Document

router = APIRouter(tags=["health"])


class Health(Document):
    """`ok` in every answer with status 200."""

    status: str


@router.get("/healthz")
async def healthz() -> Health:
    """Tell that the process answers."""
    return Health(status="ok")


@router.get("/readyz")
def readyz(service: Service) -> Health:
    """Tell that the database can be used; a problem with status 503 otherwise."""
    service.check_ready()
    return Health(status="ok")
