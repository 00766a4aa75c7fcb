"""Bodies that /docs shows as examples; a test sends each of them through its own model."""

from typing import Any

STUDY: dict[str, Any] = {
    "study": "sepsis-2026",
    "purpose": "Predict sepsis within 12 hours of admission.",
    "legal_basis": "GDPR 9(2)(j), ethics vote 2026-117.",
    "sites": ["hospital-a", "hospital-b", "hospital-c"],
    "expires": "2027-12-31T23:59:59.000000Z",
}

PLAN: dict[str, Any] = {
    "format": "fedward-plan/1",
    "name": "sepsis, logistic regression",
    "study": "sepsis-2026",
    "app": {
        "recipe": "tabular",
        "config": {"target": "sepsis", "features": "age,lactate,pulse", "model": "logistic"},
    },
    "model": "sha256:" + "5e" * 32,
    "dataset": "admissions",
    "prepare": "statistics",
    "rounds": {"count": 20, "quorum": 2, "deadline_s": 600.0, "grace_s": 10.0},
    "strategy": {"name": "fedavg", "parameters": {}},
    "seed": 7,
}


def openapi_example(value: dict[str, Any]) -> dict[str, Any]:
    """Return `value` in the form of `Body(openapi_examples=…)`."""
    return {"default": {"value": value}}
