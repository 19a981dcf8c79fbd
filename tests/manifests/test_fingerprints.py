import hashlib
import json
import logging
import os
import time

import pytest

from pilotfish.hooks.errors import BrokenModel
from pilotfish.manifests import fingerprints
from pilotfish.manifests.digests import Digest
from pilotfish.manifests.fingerprints import file_digest, known_digest, library_fingerprint, tokenizer_pin, verify_blob
from pilotfish.manifests.remembered import FILE_NAME, SETTLED_SECONDS
from tests.manifests.builders import tiny_gguf


@pytest.fixture
def settled(tmp_path):
    """A file that has not changed for long enough to be remembered."""
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    time.sleep(2 * SETTLED_SECONDS)
    return path


@pytest.fixture
def reads(monkeypatch):
    """Counts how often a file is really hashed."""
    count = []
    real = hashlib.file_digest

    def counting(file, kind):
        count.append(file.name)
        return real(file, kind)

    monkeypatch.setattr(fingerprints.hashlib, "file_digest", counting)
    return count


def test_a_file_is_hashed_once(settled, tmp_path, reads):
    expected = Digest(hashlib.sha256(b"weights").hexdigest())
    assert [file_digest(settled, tmp_path / "state") for _ in range(3)] == [expected] * 3
    assert known_digest(settled, tmp_path / "state") == expected
    assert len(reads) == 1


def test_a_change_of_the_same_size_and_time_is_noticed(settled, tmp_path):
    before = settled.stat()
    file_digest(settled, tmp_path / "state")
    settled.write_bytes(b"WEIGHTS")
    os.utime(settled, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert known_digest(settled, tmp_path / "state") is None
    assert file_digest(settled, tmp_path / "state").hex == hashlib.sha256(b"WEIGHTS").hexdigest()


@pytest.mark.parametrize(
    ("now", "remembered"),
    [(SETTLED_SECONDS / 2, False), (-SETTLED_SECONDS / 2, False), (2 * SETTLED_SECONDS, True), (-3600.0, True)],
    ids=["just changed", "just changed, by a clock that drifts", "a moment later", "the clock was put back an hour"],
)
def test_a_file_is_remembered_when_a_change_would_show(tmp_path, monkeypatch, now, remembered):
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    changed = path.stat().st_ctime
    os.utime(path, (changed, changed))
    changed = path.stat().st_ctime
    monkeypatch.setattr(time, "time", lambda: changed + now)
    file_digest(path, tmp_path / "state")
    assert (known_digest(path, tmp_path / "state") is not None) is remembered


def test_a_file_whose_time_lies_ahead_is_hashed_once(settled, tmp_path, reads):
    os.utime(settled, (4e9, 4e9))
    changed = settled.stat().st_ctime
    while time.time() - changed <= SETTLED_SECONDS:
        time.sleep(SETTLED_SECONDS / 4)
    for _ in range(3):
        file_digest(settled, tmp_path / "state")
    assert len(reads) == 1


def test_without_a_state_folder_nothing_is_remembered(settled, reads):
    file_digest(settled)
    file_digest(settled)
    assert known_digest(settled, None) is None
    assert len(reads) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 99, "files": {}}',
        b'{"format": 1, "files": 3}',
        b"\xff" * 10,
        b"[" * 100_000,
    ],
)
def test_a_damaged_memory_is_ignored_and_replaced(settled, tmp_path, data):
    state = tmp_path / "state"
    state.mkdir()
    (state / FILE_NAME).write_bytes(data)
    expected = file_digest(settled, state)
    assert known_digest(settled, state) == expected
    assert json.loads((state / FILE_NAME).read_bytes())["format"] == 1


def test_a_damaged_entry_is_ignored(settled, tmp_path):
    state = tmp_path / "state"
    file_digest(settled, state)
    table = json.loads((state / FILE_NAME).read_bytes())
    for odd in (3, {"stamp": 3}, {**table["files"][str(settled)], "facts": 3}):
        (state / FILE_NAME).write_text(json.dumps({"format": 1, "files": {str(settled): odd}}))
        assert known_digest(settled, state) is None
        file_digest(settled, state)
        assert known_digest(settled, state) is not None


def test_a_state_folder_that_cannot_be_written_costs_only_time(settled, tmp_path, caplog):
    (tmp_path / "state").write_bytes(b"a file, not a folder")
    with caplog.at_level(logging.INFO, "pilotfish.fingerprints"):
        assert file_digest(settled, tmp_path / "state").hex == hashlib.sha256(b"weights").hexdigest()
    assert "cannot be written" in caplog.text


def test_the_memory_is_written_whole_and_for_the_owner_only(settled, tmp_path):
    state = tmp_path / "state"
    file_digest(settled, state)
    assert [path.name for path in state.iterdir()] == [FILE_NAME]
    assert (state / FILE_NAME).stat().st_mode & 0o077 == 0


def test_a_blob_that_does_not_hash_to_its_name_is_refused(settled):
    verify_blob(settled, Digest(hashlib.sha256(b"weights").hexdigest()))
    with pytest.raises(BrokenModel, match=rf"blob {settled} of m:latest was damaged"):
        verify_blob(settled, Digest("0" * 64), model="m:latest")


def test_libraries_count_by_name_and_content_in_any_order(tmp_path):
    a, b = tmp_path / "liba.so", tmp_path / "libb.so"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    first = library_fingerprint([a, b])
    assert first == library_fingerprint([b, a])
    b.write_bytes(b"3")
    assert library_fingerprint([a, b]) != first
    assert library_fingerprint([a]) != library_fingerprint([b])


def test_a_missing_file_is_a_typed_error(tmp_path):
    for look in (file_digest, tokenizer_pin):
        with pytest.raises(BrokenModel, match="cannot be read"):
            look(tmp_path / "missing")


def test_a_tokenizer_is_read_once(tmp_path, monkeypatch):
    path = tiny_gguf(tmp_path / "m.gguf")
    time.sleep(2 * SETTLED_SECONDS)
    first = tokenizer_pin(path, tmp_path / "state")

    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(fingerprints, "read_metadata", refuse)
    assert tokenizer_pin(path, tmp_path / "state") == first


def test_a_remembered_pin_of_odd_shape_is_computed_again(tmp_path):
    path, state = tiny_gguf(tmp_path / "m.gguf"), tmp_path / "state"
    time.sleep(2 * SETTLED_SECONDS)
    first = tokenizer_pin(path, state)
    table = json.loads((state / FILE_NAME).read_bytes())
    for odd in (3, [], ["x"] * 7):
        table["files"][str(path)]["facts"] = {"tokenizer-1": odd}
        (state / FILE_NAME).write_text(json.dumps(table))
        assert tokenizer_pin(path, state) == first
