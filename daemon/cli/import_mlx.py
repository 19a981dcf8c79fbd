"""`pilotfish import-mlx`: a folder with an MLX model becomes a model of Ollama's store."""

from __future__ import annotations

from pathlib import Path

import click
from rich import filesize
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from pilotfish.daemon.cli.console import err, out
from pilotfish.hooks.errors import ModelNotFound, UsageError
from pilotfish.manifests.names import ModelName
from pilotfish.manifests.store import Store
from pilotfish.manifests.tensor_folder import read_folder
from pilotfish.manifests.tensor_import import import_folder

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command("import-mlx")
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.argument("name")
@click.option("--draft", type=_FOLDER, metavar="DIR", help="A drafter's folder, bundled as Ollama bundles them.")
@click.option(
    "--template", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Ollama's prompt template."
)
@click.option("--replace", is_flag=True, help="Replace a model of that name.")
@click.option("--models", "root", type=click.Path(path_type=Path), help="The model store; Ollama's own by default.")
def command(
    folder: Path, name: str, draft: Path | None, template: Path | None, replace: bool, root: Path | None
) -> None:
    """Put the model in DIR, in Hugging Face's or mlx-lm's layout, into the model store as NAME.

    Each tensor becomes a blob, as Ollama's own MLX engine has it. Weights stay as they are: convert and quantize with
    mlx_lm.convert before.
    """
    store, wanted = Store.find(root), ModelName.parse(name)
    if not replace:
        _need_free(store, wanted)
    model, bundled = read_folder(folder), read_folder(draft) if draft else None
    text = template.read_text() if template else ""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(f"Importing {wanted.short}")
        import_folder(
            store.root,
            wanted,
            model,
            draft=bundled,
            template=text,
            progress=lambda done, size: bar.update(task, completed=done, total=size),
        )
    size = filesize.decimal(store.manifest(wanted).size)
    told = f"{wanted.short} is in {store.root} ({size}). All about it: pilotfish models {wanted.short}"
    out.print(told, markup=False, soft_wrap=True)


def _need_free(store: Store, wanted: ModelName) -> None:
    try:
        store.manifest(wanted)
    except ModelNotFound:
        return
    raise UsageError(f"there is a model {wanted.short} in {store.root}; choose another name, or add --replace")
