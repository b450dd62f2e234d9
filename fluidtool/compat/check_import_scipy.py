"""`paddle.check_import_scipy`: advice for a scipy that Windows cannot load (Paddle 1.8.5)."""

from __future__ import annotations


def check_import_scipy(OsName: str) -> None:
    """On Windows ("nt"), raises ImportError with advice if scipy lacks the runtime library of Visual C++."""
    if OsName != "nt":
        return
    try:
        __import__("scipy.io")
    except ImportError as error:
        if "DLL load failed" in str(error):
            raise ImportError(f"{error}\ninstall the Visual C++ Redistributable, which scipy needs") from error
