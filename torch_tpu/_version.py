"""The version of this package and the torch versions that it accepts: the one place for both."""

__version__ = "0.1.0"

# major.minor; the compiled part fits no other. pyproject.toml pins the same (tests/test_import.py).
TORCH_VERSIONS = ("2.13",)


def check_torch(found: str) -> None:
    """Raise ImportError, in one sentence, when `found` (torch.__version__) is not accepted."""
    if ".".join(found.split(".")[:2]) in TORCH_VERSIONS:
        return
    raise ImportError(
        f"torch_tpu {__version__} needs torch {' or '.join(TORCH_VERSIONS)}, found {found}; "
        f"run `pip install 'torch=={TORCH_VERSIONS[-1]}.*'` or install a torch_tpu for this torch."
    )
