"""Make `.links/fedward/<part>` point at the folders, so that mypy sees the import names.

The folders stand at the top level and are mapped to `fedward.<folder>` by setuptools;
mypy and import-linter find them through these links.
"""

from pathlib import Path

PARTS = ("protocol", "strategies", "privacy", "coordinator", "client", "simulation", "cli")


def main() -> None:
    """Make the links that are missing."""
    root = Path(__file__).resolve().parent.parent
    links = root / ".links" / "fedward"
    links.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        link = links / part
        if not link.is_symlink():
            link.symlink_to(Path("..") / ".." / part)


if __name__ == "__main__":
    main()
