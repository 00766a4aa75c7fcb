"""`python -m fedward.cli`, for processes that start others without relying on PATH."""

from . import main

if __name__ == "__main__":
    main()
