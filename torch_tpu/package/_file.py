"""A package on disk: a zip archive of stored members, whose weights are a safetensors file."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_tpu.package._signature import PackageError, Signature, dtype_name

SIGNATURE, PROGRAM = "package.json", "program.mlir"
WEIGHTS, EXECUTABLE = "weights.safetensors", "executable"

_CODES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "C128", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


@dataclass
class Contents:
    """What a package holds. Weights are contiguous tensors on the host, by the arguments' names."""

    signature: Signature
    text: str
    weights: dict[str, torch.Tensor]
    executable: bytes  # empty: none


def write(contents: Contents, path: str | os.PathLike[str]) -> Path:
    """Write the file, under another name first."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as archive:
            archive.writestr(SIGNATURE, contents.signature.to_json())
            archive.writestr(PROGRAM, contents.text)
            if contents.executable:
                archive.writestr(EXECUTABLE, contents.executable)
            if contents.weights:
                _write_weights(archive, contents.weights)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def read(path: str | os.PathLike[str]) -> Contents:
    """Raises PackageError for a file that is no package or is damaged, OSError for none."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if SIGNATURE not in names or PROGRAM not in names:
                raise PackageError(f"it is a zip archive without {SIGNATURE} and {PROGRAM}")
            signature = Signature.from_json(archive.read(SIGNATURE))
            weights = _weights_of(archive.read(WEIGHTS)) if WEIGHTS in names else {}
            executable = archive.read(EXECUTABLE) if EXECUTABLE in names else b""
            text = archive.read(PROGRAM).decode()
    except (zipfile.BadZipFile, UnicodeDecodeError, EOFError, PackageError) as error:
        raise PackageError(f"{os.fspath(path)} is no package of torch_tpu: {error}") from error
    for a in signature.arguments:
        if not a.is_weight:
            continue
        w = weights.get(a.name)
        if w is None or tuple(w.shape) != a.shape or dtype_name(w.dtype) != a.dtype:
            raise PackageError(
                f"{os.fspath(path)}: the weight {a.name} is "
                + ("missing" if w is None else f"{dtype_name(w.dtype)}{list(w.shape)}")
                + f", the program takes {a.dtype}{list(a.shape)}"
            )
    return Contents(signature, text, weights, executable)


def _bytes(tensor: torch.Tensor) -> memoryview:
    if tensor.numel() == 0:
        return memoryview(b"")
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())  # type: ignore[arg-type]


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The elements of a host tensor, row-major."""
    return bytes(_bytes(tensor))


def _write_weights(archive: zipfile.ZipFile, weights: dict[str, torch.Tensor]) -> None:
    header, at = {}, 0
    for name, w in weights.items():
        size = w.numel() * w.element_size()
        header[name] = {
            "dtype": _CODES[dtype_name(w.dtype)],
            "shape": list(w.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with archive.open(WEIGHTS, "w", force_zip64=True) as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for w in weights.values():
            out.write(_bytes(w))


def _weights_of(data: bytes) -> dict[str, torch.Tensor]:
    dtypes = {code: getattr(torch, name) for name, code in _CODES.items()}
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        body = bytearray(memoryview(data)[8 + size :])
        weights = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            dtype, shape = dtypes[about["dtype"]], about["shape"]
            begin, end = about["data_offsets"]
            if not 0 <= begin <= end <= len(body):
                raise ValueError(f"{name} lies outside of the file")
            if begin == end:
                weights[name] = torch.empty(shape, dtype=dtype)
                continue
            flat = torch.frombuffer(body, dtype=torch.uint8, count=end - begin, offset=begin)
            weights[name] = flat.clone().view(dtype).reshape(shape)
        return weights
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise PackageError(f"its weights cannot be read: {error}") from error


def supported(dtype: torch.dtype) -> bool:
    """Whether a package may hold tensors of that dtype."""
    return dtype_name(dtype) in _CODES
