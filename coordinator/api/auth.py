"""Who may call what: the role table, deny by default.

A route's name is its permission. A route without a row may be called by nobody. The table
follows shared/design/trust.md section 2: an admin runs the installation but neither downloads
models nor reads the audit log's events; an auditor reads everything and changes nothing.
"""

from collections.abc import Mapping

from fedward.coordinator.actors import ROLES

ADMIN, OPERATOR, RESEARCHER, AUDITOR = ROLES

_EVERYBODY = frozenset(ROLES)
_MANAGE = frozenset({ADMIN, OPERATOR})
_WORK = frozenset({ADMIN, OPERATOR, RESEARCHER})
_ADMIN = frozenset({ADMIN})
_AUDIT = frozenset({AUDITOR})

PERMISSIONS: Mapping[str, frozenset[str]] = {
    "create_study": _MANAGE,
    "list_studies": _EVERYBODY,
    "show_study": _EVERYBODY,
    "close_study": _MANAGE,
    "add_app": _WORK,
    "list_apps": _EVERYBODY,
    "show_app": _EVERYBODY,
    "add_model": _WORK,
    "list_models": _EVERYBODY,
    "show_model": _EVERYBODY,
    "model_lineage": _EVERYBODY,
    "download_model": frozenset({OPERATOR, RESEARCHER, AUDITOR}),
    "validate_plan": _WORK,
    "submit_plan": _WORK,
    "list_plans": _EVERYBODY,
    "show_plan": _EVERYBODY,
    "create_run": _WORK,
    "start_run": _WORK,
    "pause_run": _WORK,
    "resume_run": _WORK,
    "stop_run": _WORK,
    "list_runs": _EVERYBODY,
    "show_run": _EVERYBODY,
    "list_rounds": _EVERYBODY,
    "show_round": _EVERYBODY,
    "run_events": _EVERYBODY,
    "invite_site": _MANAGE,
    "list_sites": _EVERYBODY,
    "show_site": _EVERYBODY,
    "revoke_site": _MANAGE,
    "create_token": _ADMIN,
    "list_tokens": frozenset({ADMIN, AUDITOR}),
    "revoke_token": _ADMIN,
    "audit_events": _AUDIT,
    "audit_head": _EVERYBODY,
    "audit_proof": _EVERYBODY,
    "audit_consistency": _EVERYBODY,
    "verify_audit": _EVERYBODY,
}


def permits(permission: str, role: str | None) -> bool:
    """Tell whether the table has a row that names the role."""
    return role in PERMISSIONS.get(permission, frozenset())


def permitted_roles(permission: str) -> tuple[str, ...]:
    """Return the roles that may, in the table's order; empty where there is no row."""
    allowed = PERMISSIONS.get(permission, frozenset())
    return tuple(role for role in ROLES if role in allowed)
