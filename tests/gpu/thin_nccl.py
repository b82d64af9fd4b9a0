#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A copy of NCCL that is small enough to be carried to a machine without a network: of its device code only that of
one kind of GPU is left, the rest is zeros.

usage: thin_nccl.py WHEEL FOLDER [ARCHITECTURE]    (build-nccl is the FOLDER that run.sh looks into)

WHEEL: NCCL's Python package, from `pip download --no-deps nvidia-nccl-cu13==2.30.7`. ARCHITECTURE: 90, the default,
for compute capability 9.0. Writes FOLDER/libnccl.so.2.xz. Exit code 1: the library has no code for it.
"""
import lzma
import os
import struct
import sys
import zipfile

LIBRARY = "nvidia/nccl/lib/libnccl.so.2"
SECTION = struct.Struct("<IIQQQQIIQQ")  # of ELF, 64 bits: name, type, flags, address, offset, size, ...
# A section of device code is a row of containers, each a header and entries: PTX, or machine code of one architecture.
CONTAINER, CONTAINER_MAGIC = struct.Struct("<IHHQ"), 0xBA55ED50  # magic, version, bytes: of the header, of all entries
ENTRY, MACHINE_CODE = struct.Struct("<HHIQ12xI"), 2  # kind, version, bytes: of the header, the code; architecture


def sections(library):
    """(name, offset, bytes) of each."""
    table, = struct.unpack_from("<Q", library, 0x28)
    each, n, names = struct.unpack_from("<HHH", library, 0x3A)
    headers = [SECTION.unpack_from(library, table + i * each) for i in range(n)]
    for header in headers:
        begin = headers[names][4] + header[0]
        yield bytes(library[begin:library.index(0, begin)]).decode(), header[4], header[5]


def entries(library, begin, end):
    """(kind, architecture, offset of the code, its bytes) of all entries between two offsets."""
    while begin + CONTAINER.size <= end:
        magic, _, header_bytes, all_bytes = CONTAINER.unpack_from(library, begin)
        if magic != CONTAINER_MAGIC:  # containers are aligned
            begin += 8 - begin % 8
            continue
        at, begin = begin + header_bytes, begin + header_bytes + all_bytes
        while at + ENTRY.size <= begin:
            kind, _, header_bytes, code_bytes, architecture = ENTRY.unpack_from(library, at)
            yield kind, architecture, at + header_bytes, code_bytes
            at += header_bytes + code_bytes


def thin(library, architecture):
    """Zeroes the code of all other architectures in a bytearray. Returns the bytes of code that are left."""
    left = 0
    for name, offset, size in list(sections(library)):
        if name == "__nv_relfatbin":  # input of the device linker, not read at run time
            library[offset:offset + size] = bytes(size)
        if name != ".nv_fatbin":
            continue
        for kind, its_architecture, at, code_bytes in entries(library, offset, offset + size):
            if kind == MACHINE_CODE and its_architecture == architecture:
                left += code_bytes
            else:
                library[at:at + code_bytes] = bytes(code_bytes)
    return left


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    wheel, folder, architecture = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["90"])[0])
    with zipfile.ZipFile(wheel) as package:
        library = bytearray(package.read(LIBRARY))
    left = thin(library, architecture)
    if not left:
        print(f"thin_nccl: {wheel} has no code for architecture {architecture}", file=sys.stderr)
        return 1
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "libnccl.so.2.xz")
    with lzma.open(path, "wb", preset=3) as file:
        file.write(library)
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, {left / 1e6:.1f} MB of device code in a library of "
          f"{len(library) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
