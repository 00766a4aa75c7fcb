"""The page at /docs, without anything fetched from elsewhere.

fastapi's own page loads Swagger UI from a public server, which a hospital's network refuses;
the files come from the package fastapi-offline instead.
"""

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

URL = "/docs"
_FILES = "/docs-files"


def install(app: FastAPI) -> None:
    """Serve the page and its files. `app` is made with `docs_url=None`."""
    files = StaticFiles(packages=[("fastapi_offline", "static")])
    app.mount(_FILES, files, name="docs-files")

    @app.get(URL, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url=app.openapi_url or "/openapi.json",
            title=app.title,
            swagger_js_url=f"{_FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{_FILES}/swagger-ui.css",
            swagger_favicon_url=f"{_FILES}/favicon.png",
        )
