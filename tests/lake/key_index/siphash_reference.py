"""SipHash-2-4 with 128 bits in plain Python, as its authors describe it, and hashes that they published."""

from __future__ import annotations

_MASK = 2**64 - 1

PUBLISHED = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    32: "7c3956ca5eeafc3e363e9d556546eb68",
    40: "df6a301e95c95dad97ae0cc8c6913bd8",
    48: "f7e5aef549f782cf379055a608269b16",
    56: "1938f2cf72d54ee97e94166fa91d2a36",
    63: "5150d1772f50834a503e069a973fbd7c",
}
"""The first bytes 0, 1, 2, ... of a message, by their number -> their hash under the key 0, 1, ..., 15."""


def siphash_128(key: bytes, message: bytes) -> bytes:
    k0, k1 = (int.from_bytes(half, "little") for half in (key[:8], key[8:]))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = message + b"\0" * (7 - len(message) % 8) + bytes([len(message) & 255])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    _rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, 4)
    return b"".join(half.to_bytes(8, "little") for half in (first, v[0] ^ v[1] ^ v[2] ^ v[3]))


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        for a, b, turn, swap in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            v[a] = (v[a] + v[b]) & _MASK
            v[b] = _turned(v[b], turn) ^ v[a]
            if swap:
                v[a] = _turned(v[a], 32)


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
