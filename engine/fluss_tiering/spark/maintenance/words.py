"""What commands and logs say of maintenance: one line for a plan, and one for what was done."""

from __future__ import annotations

from typing import Final

from fluss_tiering.model.units import parse_memory_size
from fluss_tiering.plural import counted
from fluss_tiering.spark.maintenance.compact import Compaction
from fluss_tiering.spark.maintenance.expire import Expiry
from fluss_tiering.spark.maintenance.maintain import Maintenance
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits, Plan
from fluss_tiering.spark.maintenance.publish import Publication
from fluss_tiering.spark.maintenance_options import MaintainOptions

_NOTHING: Final = "nothing is worth doing"


def limits_of(options: MaintainOptions) -> MaintenanceLimits:
    """Return the limits that the options of a command say."""
    return MaintenanceLimits(
        max_bytes=parse_memory_size(options.max_bytes),
        cores=options.cores,
        min_input_files=options.min_input_files,
        delete_files=options.delete_files,
    )


def planned_text(plan: Plan) -> str:
    """Return what a plan would do, and what it leaves."""
    rest = []
    if plan.groups_left:
        left = counted(plan.groups_left, "more group")
        rest.append(f"beyond --max-bytes, {left} of files would be worth rewriting")
    if needed := plan.expirable.needed:
        rest.append(f"{counted(needed, 'old snapshot')} would stay for Fluss's readers or for recovery")
    if plan.note:
        rest.append(plan.note)
    return "; ".join([*([f"would {part}" for part in _planned_parts(plan)] or [_NOTHING]), *rest])


def begin_text(plan: Plan) -> str | None:
    """Return the line before maintenance by a plan; None if nothing is worth doing."""
    parts = _planned_parts(plan)
    return f"maintenance begins, to {'; to '.join(parts)}" if parts else None


def _planned_parts(plan: Plan) -> list[str]:
    parts = []
    if plan.expired_records:
        parts.append(f"delete {counted(plan.expired_records, 'expired record')}")
    if groups := plan.groups:
        files, new = sum(each.files for each in groups), sum(each.new_files for each in groups)
        size = sum(each.bytes for each in groups)
        parts.append(f"replace {counted(files, 'data file')} of {size:,} bytes by about {new}")
    if plan.merges:
        parts.append(
            f"merge {counted(plan.deletes_to_merge, 'position delete file')}, for about {plan.fewer_deletes:,} fewer"
        )
    if plan.fewer_manifests:
        parts.append(f"merge manifests, for about {plan.fewer_manifests} fewer")
    if plan.expirable.free:
        parts.append(f"expire {counted(len(plan.expirable.free), 'snapshot')}")
    return parts


def done_text(done: Maintenance) -> str:
    """Return what maintenance has done, in which time."""
    if done.was_never_tiered:
        return "skipped: nothing of the table is in the lake yet"
    if done.plan is None:
        return "maintenance gave way to a round"
    parts = []
    if done.expired_records:
        parts.append(f"deleted {counted(done.expired_records, 'expired record')}")
    if done.rewritten.files:
        parts.append(
            f"replaced {counted(done.rewritten.files, 'data file')} of {done.rewritten.bytes:,} bytes by "
            f"{done.rewritten.new_files} and removed {counted(done.rewritten.delete_files, 'delete file')} (old files "
            "stay until their snapshots expire)"
        )
    elif done.rewritten.delete_files:
        parts.append(f"merged position delete files, {done.rewritten.delete_files:,} fewer")
    if done.fewer_manifests:
        parts.append(f"merged manifests, {done.fewer_manifests} fewer")
    if done.expired:
        parts.append(
            f"expired {counted(done.expired, 'snapshot')} and deleted {counted(done.deleted_files, 'file')} of theirs"
        )
    if done.orphans:
        parts.append(f"deleted {counted(done.orphans, 'file')} that no snapshot refers to")
    if done.conflicts:
        parts.append("left the rest, since others changed the same files")
    if done.interrupted:
        parts.append("gave way to a round")
    return f"maintained in {done.seconds:.1f} s: {'; '.join(parts or [_NOTHING])}"


def compacted_text(done: Compaction) -> str:
    """Return what a compaction has done, in which time."""
    replaced = f"{counted(done.rewritten_files, 'data file')} {'was' if done.rewritten_files == 1 else 'were'} replaced"
    deletes = ""
    if done.before is not None and done.after is not None and done.before.delete_files:
        deletes = f", and delete files went from {done.before.delete_files:,} to {done.after.delete_files:,}"
    return f"{replaced} by {done.added_files:,}{deletes}, in {done.seconds:.1f} s"


def expired_text(done: Expiry) -> str:
    """Return what an expiry has done."""
    return (
        f"expired {counted(done.expired, 'snapshot')} and kept {done.kept:,}, {done.needed:,} of them for Fluss's "
        f"readers or for recovery; deleted {counted(done.deleted_files, 'file')}"
    )


def published_text(done: Publication) -> str:
    """Return what was published."""
    what = f"{counted(done.rounds, 'round')} with {counted(done.rows, 'written row')}"
    text = f"{what} published" if done.rounds else "nothing new to publish"
    tagged = f", tagged {done.tag}" if done.tag else ""
    rest = "" if done.known else "; Fluss's own readers see it after the next round"
    return f"{text}: main is at snapshot {done.snapshot_id}{tagged}{rest}"
