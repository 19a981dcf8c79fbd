"""What stands around the models: config, plugins, engines, Ollama, devices."""

from __future__ import annotations

from collections.abc import Iterator

from pilotfish.daemon.config.types import STOCK_ENGINE
from pilotfish.daemon.lab.doctor.finding import Finding, Level
from pilotfish.daemon.lab.doctor.surroundings import Surroundings

_INSTALL = "pilotfish overlay install"


def config_findings(around: Surroundings) -> Iterator[Finding]:
    """A config that is not in force, and settings that cost exactness, drafts or time."""
    config = around.overview["config"]
    about, force = config["path"] or "the config", config["in_force"]
    if config["error"]:
        yield Finding(
            Level.PROBLEM, about, config["error"], "the last config that was right is in force", "mend the file"
        )
    speculation = force["speculation"]
    if not speculation["enabled"]:
        yield Finding(Level.NOTE, about, "speculation is switched off", "every model decodes plainly", "pilotfish on")
    if speculation["parity"] == "none":
        why = "drafts are verified in forwards that were never compared: ids may change with speculation on"
        yield Finding(Level.WARNING, about, 'parity is "none"', why, 'set [speculation] parity = "lane"')
    if force["engine"]["prompts"] == "lane":
        why = "long prompts are read in the exact lane: on libllama that takes longer than stock does"
        remedy = 'set [engine] prompts = "fast", unless answers must not depend on what was asked before'
        yield Finding(Level.NOTE, about, 'prompts are read in the "lane"', why, remedy)


def plugin_findings(around: Surroundings) -> Iterator[Finding]:
    """Plugins that were not loaded, and drafters of loaded models that are not at work."""
    why = "it is left out; everything else goes on"
    for problem in around.overview["plugins"].get("problems", ()):
        yield Finding(Level.PROBLEM, "plugins", problem, why, "pilotfish conformance FILE says what is expected")
    for runner in around.overview["runners"]:
        for name, found in runner.get("pool", {}).items():
            if found["state"] not in ("ready", "loading"):
                what = f"the drafter {name} is {found['state']}" + (f": {found['about']}" if found["about"] else "")
                yield Finding(Level.WARNING, runner["model"], what, "the model is drafted for without it")
        for problem in runner["problems"]:
            yield Finding(Level.WARNING, runner["model"], problem, "the runner goes on without it")


def engine_findings(around: Surroundings) -> Iterator[Finding]:
    """Engines that cannot be used."""
    engines = around.overview["engines"]
    for problem in engines["problems"]:
        level = Level.WARNING if engines["here"] else Level.PROBLEM
        why = (
            "another engine computes"
            if engines["here"]
            else "nothing can be computed here, so stock serves every model"
        )
        yield Finding(level, "engines", problem, why)
    if engines["here"] and STOCK_ENGINE not in engines["here"]:
        why = "how far another engine's rows are from libllama's cannot be measured"
        yield Finding(Level.NOTE, "engines", "libllama is not among the engines", why, "pip install 'pilotfish[llama]'")
    if around.kernels_lack:
        what, why = "kernels for float weights are not built", "on libllama F16, BF16 and experts mostly decode plainly"
        yield Finding(Level.NOTE, "engines", what, why, "pilotfish kernels-build")


def ollama_findings(around: Surroundings) -> Iterator[Finding]:
    """The overlay, the Ollama that it was made from, and the one that answers."""
    overlay, answering = around.overlay, around.ollama_version
    if not answering:
        why = "clients of Ollama reach nothing at this address"
        yield Finding(Level.NOTE, "Ollama", f"no server answers at {around.ollama_url}", why, "pilotfish overlay run")
    if overlay is None:
        yield Finding(Level.WARNING, "overlay", "its state cannot be read", "", "pilotfish overlay status")
        return
    if not overlay["record"]:
        why = "Ollama's own clients get no drafts; `pilotfish serve` works without one"
        yield Finding(Level.NOTE, "overlay", "none is installed", why, _INSTALL)
        return
    for drift in overlay["drift"]:
        why = "the overlay was made from another Ollama; launches may go to the stock server"
        yield Finding(Level.PROBLEM, "overlay", drift, why, _INSTALL)
    build = overlay["record"]["build"]
    if build["dirty"]:
        why = "its version does not say what it computes with; certificates hold for the libraries' exact bytes"
        yield Finding(Level.WARNING, "Ollama", "the build has local changes", why, "use a released build, or accept it")
    if answering and build["version"] and answering != build["version"]:
        what = f"version {answering} answers at {around.ollama_url}, the overlay is of {build['version']}"
        why = "the server that runs is not the overlaid one, or is older than the update"
        yield Finding(Level.WARNING, "Ollama", what, why, f"{_INSTALL}, then start Ollama again")


def device_findings(around: Surroundings) -> Iterator[Finding]:
    """Devices that only one process may use, and who does."""
    for device, owner in around.held.items():
        why = "a second process could reset the device under the first, so a drafter there waits or is left out"
        yield Finding(Level.NOTE, device, f"held by {owner}", why)
    if not around.overview["daemon"]["running"]:
        why = "a change of the config takes effect at the next load, and totals are not added up"
        yield Finding(Level.NOTE, "daemon", "it does not run", why, "pilotfish daemon")
