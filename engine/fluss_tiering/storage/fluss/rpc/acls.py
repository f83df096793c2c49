"""The ACL that a user of a Fluss cluster lacks, read from what the cluster says when it refuses a call."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

_PRINCIPAL_REFUSED: Final = re.compile(
    r"Principal FlussPrincipal\{name='(?P<name>.*)', type='(?P<type>.*)'\} have no authorization to operate "
    r"(?P<operation>\w+) on resource Resource\{type=(?P<resource_type>\w+), name='(?P<resource>.*)'\}"
)
"""What `AbstractAuthorizer` says."""
_BUCKET_REFUSED: Final = re.compile(
    r"No permission to (?P<operation>\w+) table (?P<table>\S+) in database (?P<database>\S+)"
)
"""What `TabletService` says of one bucket of several, without a principal."""
_UNKNOWN_PRINCIPAL: Final = "User:NAME"


class ResourceType(StrEnum):
    """What an ACL is about. An ACL of the cluster counts for all databases, one of a database for all its tables."""

    CLUSTER = "CLUSTER"
    DATABASE = "DATABASE"
    TABLE = "TABLE"


@dataclass(frozen=True, slots=True)
class MissingAcl:
    """An ACL that is missing.

    Attributes:
        operation: The operation, for example READ.
        resource_type: The kind of the resource: CLUSTER, DATABASE or TABLE.
        resource: The name of the database or the table; Fluss's own name for the cluster.
        principal: The type and the name of who was refused, such as `User:tiering`; None if it is not known.
    """

    operation: str
    resource_type: str
    resource: str
    principal: str | None = None

    @classmethod
    def read(cls, message: str) -> Self | None:
        """Read it from the message of an AUTHORIZATION_EXCEPTION; None if the message is of another form.

        Authorizers of others, which a cluster may load, have messages of their own.
        """
        if found := _PRINCIPAL_REFUSED.search(message):
            principal = f"{found['type']}:{found['name']}"
            return cls(found["operation"], found["resource_type"], found["resource"], principal)
        if found := _BUCKET_REFUSED.search(message):
            return cls(found["operation"], ResourceType.TABLE, f"{found['database']}.{found['table']}")
        return None

    def of_user(self, user: str) -> Self:
        """Return the same with this user of SASL/PLAIN as the principal, unless Fluss named one."""
        return self if self.principal else replace(self, principal=f"User:{user}")

    def text(self) -> str:
        """Return a sentence that says what is missing, and how to add it."""
        on = self.resource_type if self._is_cluster else f"{self.resource_type} {self.resource}"
        return (
            f"the Fluss cluster refuses {self.principal or 'this user'} {self.operation} on {on}; add the missing ACL, "
            f"for example in Flink SQL with a catalog of the cluster: {self.statement()}"
        )

    def statement(self) -> str:
        """Return the call of Fluss's procedure for Flink SQL that adds the ACL."""
        resource = "cluster" if self._is_cluster else f"cluster.{self.resource}"
        return (
            f"CALL sys.add_acl(resource => '{resource}', permission => 'ALLOW', "
            f"principal => '{self.principal or _UNKNOWN_PRINCIPAL}', operation => '{self.operation}')"
        )

    @property
    def _is_cluster(self) -> bool:
        return self.resource_type == ResourceType.CLUSTER
