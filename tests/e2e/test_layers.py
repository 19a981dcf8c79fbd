"""Models whose manifests bring more than weights, under a real Ollama: a projector, and a small model that drafts."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import zlib
from pathlib import Path

import psutil
import pytest

from pilotfish.manifests import manifest as media
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.writer import add_gguf
from tests.daemon.runner.tiny_projector import write_tiny_projector
from tests.e2e.conftest import PARAMETERS, TEMPLATE
from tests.e2e.ollama_server import GREEDY, serving
from tests.manifests.builders import smollm2_path as packaged_smollm2
from tests.plugins.drafters.tiny_llama import write_tiny_llama
from tests.waiting import wait_until

pytestmark = [pytest.mark.ollama, pytest.mark.model, pytest.mark.timeout(600)]

SEEING, BRINGING = "seeing", "bringing"
SHORT = {**GREEDY, "num_predict": 12}
LINES = "Write ten lines, each starting with Alpha."
EMBD = 576  # of SmolLM2


def add_layer(store: Path, name: str, media_type: str, file: Path) -> None:
    """Put a file into the store, as one more layer of a model of its own."""
    path = add_gguf(store, ModelName.parse(name), packaged_smollm2(), template=TEMPLATE, params=PARAMETERS)
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    shutil.copyfile(file, store / "blobs" / f"sha256-{digest}")
    table = json.loads(path.read_text())
    table["layers"].append({"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)})
    path.write_text(json.dumps(table))


@pytest.fixture
def seeing(models: Path, tmp_path: Path) -> str:
    add_layer(models, SEEING, media.PROJECTOR, write_tiny_projector(tmp_path / "projector.gguf", EMBD))
    return SEEING


@pytest.fixture
def bringing(models: Path, tmp_path: Path) -> str:
    add_layer(models, BRINGING, media.DRAFT, write_tiny_llama(tmp_path / "draft.gguf", packaged_smollm2()))
    return BRINGING


def picture(side: int = 16) -> bytes:
    """A PNG that fades from black to red."""
    rows = b"".join(b"\0" + bytes(value for x in range(side) for value in (x * 15, 0, 0)) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def predicted(server) -> int:
    """Tokens that the runner itself decoded so far."""
    lines = server.runner().get("/metrics").text.splitlines()
    (total,) = (line for line in lines if line.startswith("llamacpp:tokens_predicted_total "))
    return int(float(total.split()[-1]))


def test_a_conversation_with_a_picture_is_stocks_and_text_is_the_runners(overlaid, stock, seeing):
    def both(messages):
        said = [server.client.chat(seeing, messages, options=SHORT) for server in (overlaid, stock)]
        assert said[0].message.content == said[1].message.content
        assert (said[0].eval_count, said[0].prompt_eval_count) == (said[1].eval_count, said[1].prompt_eval_count)
        return said[0].message.content

    text = [{"role": "user", "content": LINES}]
    both(text)
    assert overlaid.decisions()[-1]["decision"] == "runner"
    assert (decoded := predicted(overlaid)) == SHORT["num_predict"]
    assert overlaid.drafted() > 0

    shown = [{"role": "user", "content": "What is this?", "images": [picture()]}]
    seen = both(shown)
    both([*shown, {"role": "assistant", "content": seen}, {"role": "user", "content": "Why?"}])
    # Models of earlier tests may still be loaded; this one brings a projector.
    loaded = psutil.Process(overlaid.process.pid).children()
    (runner,) = (child for child in loaded if "--mmproj" in child.cmdline())
    assert [Path(child.exe()).name for child in runner.children()] == ["llama-server"]
    assert predicted(overlaid) == decoded, "pictures, and what follows them, are the stock server's"

    both(text)
    assert predicted(overlaid) == 2 * decoded


def test_a_complete_model_in_a_draft_layer_is_a_drafter_of_our_lane(overlay, folder, models, bringing):
    place = folder / "bringing"
    place.mkdir()
    (place / "pilotfish.toml").write_text("[drafters]\norder = []\n")  # but for the model's own
    with serving(overlay, place, models) as server:
        server.client.generate(bringing, "Hi", options={"num_predict": 1})
        assert "draft-mtp" in server.launched()[-1]
        assert server.decisions()[-1]["decision"] == "runner"

        def loaded():
            return server.runner().get("/pilotfish/explain").json()["pool"]["llama"]["state"] == "ready"

        wait_until(loaded, "the layer's model is not ready")
        asked = {"prompt": LINES, "n_predict": 12, "temperature": 0, "return_tokens": True}
        own = server.runner().post("/completion", json=asked).json()
        plain = server.runner().post("/completion", json={**asked, "speculate": False}).json()
    assert (own["pilotfish"]["drafters"], own["pilotfish"]["dropped"]) == (["llama"], {})
    assert plain["pilotfish"]["drafters"] == []
    assert own["tokens"] == plain["tokens"]
