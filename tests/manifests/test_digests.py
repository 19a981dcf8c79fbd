import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests.digests import Digest

HEX = "ab" * 32


def test_both_spellings_name_the_same_blob():
    assert Digest.parse(f"sha256:{HEX}") == Digest.parse(f"sha256-{HEX}") == Digest.parse(f"sha256:{HEX.upper()}")
    assert Digest.parse(f"sha256:{HEX}").blob == f"sha256-{HEX}"
    assert str(Digest.parse(f"sha256-{HEX}")) == f"sha256:{HEX}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256-:" + HEX,
        "sha256:" + HEX[:-1],
        "sha256:" + HEX + "0",
        "sha256:" + "zz" * 32,
        "md5:" + HEX,
        "sha256:../../../etc/passwd",
        "../" + HEX,
        f"sha256:{HEX}\n",
        f" sha256:{HEX}",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(BrokenModel, match="not a digest"):
        Digest.parse(text)
