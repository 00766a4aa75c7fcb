"""The one command `fedward`; the parts are imported only when a sub-command needs them."""


def main() -> None:
    """Run the command line."""
    from .root import app

    app()
