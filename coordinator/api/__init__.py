"""The HTTP interface of the coordinator; the only place that knows fastapi."""
