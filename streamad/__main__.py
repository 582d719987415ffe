"""``python -m streamad`` is ``streamad``."""

from streamad.cli import main

if __name__ == "__main__":
    main()
