"""Job folders: the programs of every role beside a manifest, as `fluidtool transpile --distribute` writes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fluidtool.distribute.endpoints import check_endpoint
from fluidtool.distribute.launch.contract import SERVERS, Cluster, Member
from fluidtool.distribute.roles import RolePrograms
from fluidtool.distribute.rpc.certificates import FOLDER as CERTIFICATES
from fluidtool.distribute.rpc.certificates import Certificates
from fluidtool.distribute.rpc.security import is_loopback
from fluidtool.errors import Hint, Location, UnreadableError, UsageError
from fluidtool.io.atomic import new_folder, write_file, write_into
from fluidtool.io.json_files import read_json_object
from fluidtool.ir import Operator, Program
from fluidtool.proto.enums import AttrType
from fluidtool.records import dataclass
from fluidtool.tensor.files import read_file

if TYPE_CHECKING:
    from fluidtool.report.transpile import JobFile, JobRole, Manifest

MANIFEST = "manifest.json"
FORMAT = 1
COLLECTIVE = "collective"
MANIFEST_MODES = (SERVERS, "nccl2", COLLECTIVE)
KINDS = ("main", "startup")
TEXTS = (AttrType.STRING, AttrType.STRINGS)
ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}")


@dataclass(frozen=True, slots=True)
class JobFolder:
    """What a manifest says. mode: "pserver", "nccl2" or "collective"; sync: whether trainers wait for one another."""

    path: Path
    mode: str
    sync: bool
    cluster: Cluster
    roles: tuple[Member, ...]
    manifest: Mapping[str, Any]

    def folder(self, member: Member) -> Path:
        """Where the programs of a role are."""
        return self.path / member.name


def read_job(path: Path, *, whole: bool = True) -> JobFolder:
    """Read the manifest of a folder and check it against the files; whole: every role of the job must be there.

    Raises UnreadableError for a manifest that is none, a file that is missing or is not what the manifest says, and
    UsageError for a job that lacks roles.
    """
    manifest = _read_manifest(path)
    try:
        job = _job(path, manifest)
        files = [role[kind] for role in manifest["roles"] for kind in KINDS]
        listed = [(str(file["file"]), str(file["sha256"])) for file in files]
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableError(f"{path / MANIFEST} lacks {error}, which the manifest of a job must have") from error
    missing = [member.name for member in job.cluster.members() if member not in job.roles]
    if missing and whole:
        raise UsageError(
            f"{path} has no programs for {', '.join(missing)}",
            hint=Hint(
                "write those of all roles: JobRequest(all_roles=True)",
                "write those of all roles with 'fluidtool transpile --distribute --all'",
            ),
        )
    for name, digest in listed:
        _check_file(path, name, digest)
    return job


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = read_json_object(file)
    except UnreadableError as error:
        raise UnreadableError(
            f"{file} is not the manifest of a job ({error})",
            hint=Hint("fluidtool.make_job writes one", "'fluidtool transpile --distribute' writes one"),
            location=Location(str(file)),
        ) from error
    if manifest.get("format") != FORMAT:
        raise UnreadableError(f"{file} is not the manifest of a job in format {FORMAT}, the only one supported")
    return manifest


def _job(path: Path, manifest: Mapping[str, Any]) -> JobFolder:
    mode = manifest["mode"]
    if mode not in MANIFEST_MODES:
        raise UnreadableError(f"{path / MANIFEST}: mode {mode!r} is not one of {', '.join(MANIFEST_MODES)}")
    if mode == SERVERS:
        servers = tuple(_endpoint(path, text) for text in manifest["pservers"])
        cluster = Cluster(servers, int(manifest["trainers"]))
    else:
        endpoints = tuple(_endpoint(path, text) for text in manifest["trainers"])
        cluster = Cluster((), len(endpoints), endpoints)
    known = {(member.kind, member.index): member for member in cluster.members()}
    roles = []
    for role in manifest["roles"]:
        member = known.get((role["role"], role["id"]))
        if member is None:
            raise UnreadableError(f"{path / MANIFEST} lists {role['role']} {role['id']!r}, which the job does not have")
        roles.append(member)
    return JobFolder(path, mode, manifest["sync"] is not False, cluster, tuple(roles), manifest)


def _endpoint(path: Path, text: object) -> str:
    return check_endpoint(text, str(path / MANIFEST))


def _check_file(path: Path, name: str, digest: str) -> None:
    file = path / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UnreadableError(f"{path / MANIFEST} lists {name!r}, which is not below its folder")
    try:
        found = hashlib.sha256(read_file(file)).hexdigest()
    except UnreadableError as error:
        raise UnreadableError(f"{file}, which the manifest lists, cannot be read: {error}") from error
    if found != digest:
        raise UnreadableError(f"{file} is not the file that the manifest lists (another SHA-256); transpile again")


# ---------------------------------------------------------------- writing
def write_job(
    target: Path,
    made: Sequence[RolePrograms],
    *,
    mode: str,
    sync: bool | None,
    servers: Sequence[str],
    trainers: int | Sequence[str],
    overwrite: bool = False,
    certificates: Mapping[str, Certificates] | None = None,
) -> Manifest:
    """Write main.pb and startup.pb of each role into a folder of its own below `target`, and the manifest, which is returned.

    servers: their endpoints; trainers: how many of servers there are, or their endpoints where they work without.
    certificates: those of each role, which only this user may read; the manifest does not list them. All is written or
    nothing. Raises OutputExistsError, OutputError.
    """
    with new_folder(target, replace=overwrite) as folder:
        manifest: Manifest = {
            "format": FORMAT,
            "mode": mode,
            "sync": sync,
            "pservers": list(servers),
            "trainers": trainers,
            "roles": [_written_role(folder, programs) for programs in made],
        }
        for name, own in (certificates or {}).items():
            _write_certificates(folder / name, own.files())
        _write_manifest(folder, manifest)
    return manifest


def _write_certificates(role: Path, files: Mapping[str, bytes]) -> None:
    """Write what only this user may read."""
    place = role / CERTIFICATES
    place.mkdir(mode=0o700)
    for name, content in files.items():
        (place / name).touch(mode=0o600)
        write_file(place / name, [content])
        (place / name).chmod(0o600)


def _written_role(folder: Path, programs: RolePrograms) -> JobRole:
    main, startup = KINDS
    return {
        "role": programs.role,
        "id": programs.index,
        "endpoint": programs.endpoint or None,
        "main": _written(folder, f"{programs.name}/{main}.pb", programs.main),
        "startup": _written(folder, f"{programs.name}/{startup}.pb", programs.startup),
    }


def _written(folder: Path, name: str, program: Program) -> JobFile:
    data = program.serialize_to_string()
    write_into(folder, {name: [data]})
    return _listed(name, data)


def _listed(name: str, data: bytes) -> JobFile:
    """A file as the manifest lists it."""
    return {"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_into(folder, {MANIFEST: [(json.dumps(manifest, indent=2) + "\n").encode()]})


# ---------------------------------------------------------------- other endpoints
def move_job(job: JobFolder, endpoints: tuple[str, ...], target: Path) -> JobFolder:
    """Write the job into the new folder `target`, its endpoints replaced, in order, by other ones."""
    before = job.cluster.endpoints
    if len(endpoints) != len(before):
        raise UsageError(f"the job has {len(before)} endpoints ({', '.join(before)}), found {len(endpoints)} for them")
    moves = dict(zip(before, endpoints, strict=True))
    with new_folder(target) as folder:
        roles = [_moved_role(job, role, moves, folder) for role in job.manifest["roles"]]
        listed = list(endpoints)
        ends = {"pservers": listed} if job.mode == SERVERS else {"trainers": listed}
        manifest = {**job.manifest, **ends, "roles": roles}
        if not all(map(is_loopback, endpoints)):
            _copy_certificates(job, folder)
        _write_manifest(folder, manifest)
    return _job(target, manifest)


def _copy_certificates(job: JobFolder, target: Path) -> None:
    """Certificates of a job name no endpoints: they stay good."""
    for member in job.roles:
        place = job.folder(member) / CERTIFICATES
        if place.is_dir():
            _write_certificates(target / member.name, {file.name: file.read_bytes() for file in place.iterdir()})


def _moved_role(job: JobFolder, role: Mapping[str, Any], moves: Mapping[str, str], folder: Path) -> dict[str, Any]:
    moved = dict(role)
    if role["endpoint"] is not None:
        moved["endpoint"] = moves[role["endpoint"]]
    for kind in KINDS:
        name = role[kind]["file"]
        program = Program.parse_from_string((job.path / name).read_bytes())
        replace_endpoints(program, moves)
        data = program.serialize_to_string()
        write_file(folder / name, [data])
        moved[kind] = _listed(name, data)
    return moved


def replace_endpoints(program: Program, moves: Mapping[str, str]) -> None:
    """Put other endpoints into whatever attribute names one, alone, in a list, or in a list joined by commas."""
    for op in (op for block in program.blocks for op in block.ops):
        for name in (name for name in op.attr_names if op.attr_type(name) in TEXTS):
            value = op.attr(name)
            moved = _moved(value, moves)
            if moved != value:
                op.set_attr(name, moved, op.attr_type(name))


def endpoints_of(program: Program) -> tuple[str, ...]:
    """Every endpoint that operators are told to talk to or to listen at, in the order in which they come."""
    ops = [op for block in program.blocks for op in block.ops]
    values = [op.attr(name) for op in ops for name in op.attr_names if _names_endpoints(op, name)]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    parts = [part for text in texts for part in text.split(",")]
    return tuple(dict.fromkeys(part for part in parts if ENDPOINT.fullmatch(part)))


def _names_endpoints(op: Operator, name: str) -> bool:
    return op.attr_type(name) in TEXTS and ("endpoint" in name or name in ("epmap", "trainers"))


def check_endpoints(job: JobFolder) -> None:
    """Raise UnreadableError for programs that talk to other machines than those that the manifest names, which is all that
    the user who starts the job sees.
    """
    for member in job.roles:
        for kind in KINDS:
            path = job.folder(member) / f"{kind}.pb"
            named = endpoints_of(Program.parse_from_string(path.read_bytes()))
            others = [name for name in named if name not in job.cluster.endpoints and not is_loopback(name)]
            if others:
                raise UnreadableError(f"{path} connects to {others[0]}, which {job.path / MANIFEST} does not name")


def _moved(value: Any, moves: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return ",".join(moves.get(part, part) for part in value.split(","))
    return [_moved(item, moves) for item in value]


def member_of(job: JobFolder, folder: Path) -> Member:
    """The role whose programs are in this folder; raises UsageError when the job has none of that name."""
    name = folder.resolve().name
    found = next((member for member in job.roles if member.name == name), None)
    if found is None:
        raise UsageError(
            f"{folder} is not a role of the job next to it, which has {', '.join(m.name for m in job.roles)}"
        )
    return found


def is_job(path: Path) -> bool:
    """Whether a folder has a manifest of a job."""
    return (path / MANIFEST).is_file()
