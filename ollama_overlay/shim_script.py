"""The file that Ollama launches as `llama-server`.

It is a script for `/bin/sh`, because it has to work when pilotfish's Python environment is damaged or gone: then, and
whenever anything else is in doubt, it becomes the stock llama-server, with the arguments and the environment it got.
Ollama ends a model by killing the process it started, so whatever is to run takes that process over (`exec`). There is
no way back from that to the script, so a child tries first whether the interpreter starts at all, and what it begins
with becomes the stock server where pilotfish cannot be imported. What is then decided, `begin` does.

Ollama puts its own libraries on the library path. libllama of llama-cpp-python finds its parts by a RUNPATH, which
that path overrides, and would be loaded together with ggml of another build. So pilotfish's processes get the path
without Ollama's folders, and keep the original value for the case that the stock server has to take over later.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from pilotfish.hooks.environment import OFF

LIBRARY_PATH = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
STOCK = "PILOTFISH_STOCK"  # in the environment of the runner: the stock server's path
SAVED = "PILOTFISH_STOCK_"  # and, with a variable's name behind it, the value that it had
LIBRARY_FOLDER = "LLAMA_CPP_LIB_PATH"  # where llama-cpp-python takes libllama from, instead of its own folder
RUNNER, RUNNER_ON_OLLAMA, DECIDED_STOCK = 0, 10, 11  # exit codes of the decision, for scripts of older overlays

_SCRIPT = """\
#!/bin/sh
# Made by `pilotfish overlay install`; changes are lost at the next one.
# Ollama launches this as llama-server. It becomes pilotfish's runner, or else the stock llama-server.

stock=@STOCK@
library=@LIBRARY@
python=@PYTHON@
here=${0%/*}

become_stock() {
  printf '%s\\n' "pilotfish: stock llama-server: $1" >&2
  shift
  exec "$stock" "$@"
}

# Remembers the value of the variable $1, if it is set, and takes Ollama's folders out of it.
without_ollama() {
  eval "set -- \\"\\$1\\" \\"\\${$1+set}\\" \\"\\${$1-}\\""
  [ "$2" = set ] || return 0
  export "PILOTFISH_STOCK_$1=$3"
  kept=
  set -f
  IFS=:
  for folder in $3; do
    case $folder in
      "$here" | "$here"/* | "$library" | "$library"/*) ;;
      *) kept=$kept${kept:+:}$folder ;;
    esac
  done
  unset IFS
  set +f
  if [ -n "$kept" ]; then export "$1=$kept"; else unset "$1"; fi
}

own_libraries() {
  export PILOTFISH_STOCK="$stock"
  without_ollama @LIBRARY_PATH@
  without_ollama GGML_BACKEND_PATH
}
@RESTORE@
case ${PILOTFISH-} in
  @OFF@) exec "$stock" "$@" ;;
esac

# Without a model Ollama only looks for devices.
loads_model=
for word in "$@"; do
  case $word in --model | -m) loads_model=yes ;; esac
done
[ -n "$loads_model" ] || exec "$stock" "$@"
[ -x "$python" ] || become_stock "$python is not there; run: pilotfish overlay install" "$@"
(own_libraries && exec "$python" -P -c "") || become_stock "$python does not start; run: pilotfish overlay install" "$@"
own_libraries
exec "$python" -P -c '@BEGIN@' "$@"
"""

# The package may be incomplete, in the middle of an update. No quotes in here: it stands between a shell's. `ps` shows
# all of it, so the first words are for whoever looks there.
_BEGIN = """\
# pilotfish runner, started by Ollama as its llama-server
import os, sys
try:
    from pilotfish.ollama_overlay.begin import main
except BaseException as error:
    if isinstance(error, KeyboardInterrupt):
        raise
    import signal
    stock, saved = os.environ.pop("PILOTFISH_STOCK"), "PILOTFISH_STOCK_"
    for name in [name for name in os.environ if name.startswith(saved)]:
        os.environ[name[len(saved):]] = os.environ.pop(name)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.write(2, f"pilotfish: stock llama-server: pilotfish cannot be imported ({error!r})\\n".encode())
    os.execv(stock, [stock, *sys.argv[1:]])
sys.exit(main())"""

# macOS takes DYLD_* out of the environment of programs of its own, /bin/sh among them.
_RESTORE_DYLD = """
[ -n "${DYLD_LIBRARY_PATH+set}" ] || export DYLD_LIBRARY_PATH="$library"
"""


def shim_script(stock: Path, python: Path, platform: str = sys.platform) -> str:
    """The script's text. `stock` is the original llama-server, beside its libraries; `python` runs pilotfish."""
    values = {
        "@STOCK@": shlex.quote(str(stock)),
        "@LIBRARY@": shlex.quote(str(stock.parent)),
        "@OFF@": " | ".join(map(_in_any_case, OFF)),
        "@PYTHON@": shlex.quote(str(python)),
        "@LIBRARY_PATH@": LIBRARY_PATH,
        "@RESTORE@": _RESTORE_DYLD if platform == "darwin" else "",
        "@BEGIN@": _BEGIN,
    }
    return re.sub("@[A-Z_]+@", lambda mark: values[mark[0]], _SCRIPT)


def _in_any_case(word: str) -> str:
    """A shell pattern: `[oO][fF][fF]`."""
    return "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in word)
