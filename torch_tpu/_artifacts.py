"""Programs of compiled graphs among the artifacts of `torch.compiler.save_cache_artifacts`.

A program is kept by the name of its file in the disk cache, which stands for its text, the plugin
and the processor: elsewhere it is never asked for.
"""

import logging

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from torch_tpu import _C

log = logging.getLogger(__name__)

TYPE = "tpu_program"


class ProgramArtifact(CacheArtifact):
    """A file of the disk cache."""

    def populate_cache(self) -> None:
        """Put it in the disk cache."""
        if not _C.store_program(self.key, self.content):
            log.warning("the program %s among the artifacts is damaged", self.key)

    @staticmethod
    def type() -> str:
        """As in `CacheInfo.tpu_program_artifacts`."""
        return TYPE


def register() -> None:
    """Make the type known, so that a process can load artifacts before it compiles anything."""
    CacheArtifactFactory.register(ProgramArtifact)


def record() -> None:
    """Add the programs that were compiled or loaded since the last call; from the first call on."""
    for name in dict.fromkeys(_C.take_program_names()):
        content = _C.stored_program(name)
        if content is not None:
            CacheArtifactManager.record_artifact(TYPE, name, content)
