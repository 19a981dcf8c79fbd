import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.hooks.errors import InvalidModelName
from pilotfish.manifests.names import ModelName


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("smollm2", "registry.ollama.ai/library/smollm2:latest"),
        ("smollm2:135m", "registry.ollama.ai/library/smollm2:135m"),
        ("me/smollm2", "registry.ollama.ai/me/smollm2:latest"),
        ("hf.co/me/Model-GGUF:Q4_K_M", "hf.co/me/Model-GGUF:Q4_K_M"),
        ("localhost:5000/me/m", "localhost:5000/me/m:latest"),
        ("localhost:5000/me/m:t", "localhost:5000/me/m:t"),
        ("https://example.com/me/m:t", "example.com/me/m:t"),
        ("http://localhost:11434/library/m", "localhost:11434/library/m:latest"),
        ("_why/_the/_lucky:_stiff", "_why/_the/_lucky:_stiff"),
        ("gpt-oss:20b-cloud", "registry.ollama.ai/library/gpt-oss:20b-cloud"),
        ("  smollm2:135m\n", "registry.ollama.ai/library/smollm2:135m"),
        ("smollm2:local", "registry.ollama.ai/library/smollm2:latest"),
        ("smollm2:135m:local", "registry.ollama.ai/library/smollm2:135m"),
        ("h" * 350 + "/" + "n" * 80 + "/" + "m" * 80 + ":" + "t" * 80,) * 2,
    ],
)
def test_every_form_is_completed(text, full):
    assert ModelName.parse(text).full == full


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "^",
        ":",
        "m:",
        ":t",
        "/m",
        "n/",
        "//m",
        "hh//m",
        "https://m",
        "/nn/mm",
        "@sha256",
        "m@d",
        "00@",
        "-m",
        "h/-n/m",
        "h/n/-m",
        "h/n/m:-t",
        "h/na:me/m:t",
        "h/na.me/m",
        "../../m:t",
        "..",
        "a/../m",
        "m:../../t",
        "a/b/c/d",
        "m\x00:t",
        "mödel",
        "m" * 81,
        "m:" + "t" * 81,
        "n" * 81 + "/m",
        "h" * 351 + "/n/m",
    ],
)
def test_what_ollama_refuses_is_refused_with_a_remedy(text):
    with pytest.raises(InvalidModelName, match=r"\[host/\]\[namespace/\]model\[:tag\]"):
        ModelName.parse(text)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("registry.ollama.ai/library/m:latest", "m:latest"),
        ("Registry.Ollama.AI/Library/m", "m:latest"),
        ("me/m:t", "me/m:t"),
        ("host/library/m:t", "host/library/m:t"),
    ],
)
def test_the_short_name_leaves_out_defaults_only(text, short):
    assert ModelName.parse(text).short == short


def test_names_that_differ_in_case_share_their_folded_form():
    assert ModelName.parse("SmolLM2:135M").folded == ModelName.parse("smollm2:135m").folded
    assert ModelName.parse("SmolLM2:135M") != ModelName.parse("smollm2:135m")


def test_a_manifest_path_of_another_depth_is_no_name(tmp_path):
    with pytest.raises(InvalidModelName):
        ModelName.from_path(tmp_path / "a" / "b" / "c" / "d")


_part = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,20}", fullmatch=True)


@given(_part, _part, _part, _part.filter(lambda tag: tag.lower() != "local"))
def test_the_full_name_and_the_path_lead_back_to_the_name(host, namespace, model, tag):
    name = ModelName(host, namespace, model, tag)
    assert ModelName.parse(name.full) == name
    assert ModelName.parse(f"https://{name.full}") == name
    assert ModelName.from_path(name.path) == name


@given(st.text())
def test_no_text_leads_out_of_the_store(text):
    try:
        path = ModelName.parse(text).path
    except InvalidModelName:
        return
    assert len(path.parts) == 4
    assert not {"..", ".", "/", ""} & set(path.parts)
