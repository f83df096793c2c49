"""A real Fluss cluster with ACLs, whose users have exactly the rights that a test gives them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from call_rights import Right
from fluss_java_client import FlussJavaClient
from fluss_support import USER, FlussCluster
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.storage.fluss.rpc.acls import ResourceType
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.tables import database_created_time
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from waiting import wait_until

TIERING: Final = Credentials("tiering", "planted-fluss-password")
"""The user of the tiering server."""
_WITNESS: Final = Credentials("witness", "witness-secret")
"""A user by whose rights a test sees that all servers know the ACLs that were made before."""
_EVERYWHERE: Final = "fluss"
_NUMBERS: Final = itertools.count()
_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class Acl:
    """An operation that is allowed on a resource, named as in `ResourceType`; the cluster has no name."""

    operation: str
    resource_type: str
    resource: str = ""


def settings() -> dict[str, str]:
    """Return the settings of a cluster with ACLs and these users. The administrator of the fixtures may do all."""
    users = " ".join(f'user_{each.username}="{each.password}"' for each in (USER, TIERING, _WITNESS))
    return {
        "authorizer.enabled": "true",
        "super.users": f"User:{USER.username}",
        "security.sasl.plain.jaas.config": "org.apache.fluss.security.auth.sasl.plain.PlainLoginModule required "
        f"{users};",
    }


def acls_of(rights: Iterable[Right], databases: Iterable[str] = (), tables: Iterable[TablePath] = ()) -> list[Acl]:
    """Return the ACLs that give rights on the database `fluss`, these databases and tables, and the cluster."""
    names = {
        ResourceType.CLUSTER: [""],
        ResourceType.DATABASE: [_EVERYWHERE, *databases],
        ResourceType.TABLE: [str(path) for path in tables],
    }
    return [Acl(right.operation, right.resource_type, name) for right in rights for name in names[right.resource_type]]


class GuardedCluster:
    """A cluster with ACLs.

    Attributes:
        cluster: The cluster.
        admin: A client through the listener that the servers use among themselves, which may do all.
        java: Fluss's own client, through the same listener.
    """

    def __init__(self, cluster: FlussCluster, admin: FlussClient, java: FlussJavaClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self.java = java
        self._given: dict[str, set[Acl]] = {}

    def client(self, user: Credentials = TIERING) -> FlussClient:
        """Return a client with the rights of a user."""
        return FlussClient(self.cluster.sasl_bootstrap, credentials=user, timeout=_TIMEOUT_S)

    def give(self, *acls: Acl, user: Credentials = TIERING) -> None:
        """Let a user have exactly these ACLs, and wait until all servers know it."""
        before, self._given[user.username] = self._given.get(user.username, set()), set(acls)
        for acl in set(acls) - before:
            self.java.allow(user.username, acl.operation, acl.resource_type, acl.resource)
        for acl in before - set(acls):
            self.java.forbid(user.username, acl.operation, acl.resource_type, acl.resource)
        # Servers learn of ACLs in the order in which they were made.
        mark = f"mark_{next(_NUMBERS)}"
        self.java.allow(_WITNESS.username, "DESCRIBE", ResourceType.DATABASE, mark)
        with self.client(USER) as client:
            known = client.call(metadata())
        assert known.coordinator is not None
        for address in (known.coordinator, *known.tablet_servers.values()):
            connection = FlussConnection(address, credentials=_WITNESS, timeout=_TIMEOUT_S)
            try:
                wait_until(lambda of=connection: _may_see(of, mark))
            finally:
                connection.close()


def _may_see(connection: FlussConnection, database: str) -> bool:
    """Return whether the witness may describe a database, which does not exist."""
    try:
        connection.call(database_created_time(database), _TIMEOUT_S)
    except FlussServerError as error:
        return error.fluss_error is not FlussError.AUTHORIZATION_EXCEPTION
    except FlussTieringError as error:
        raise AssertionError from error
    raise AssertionError(f"there is a database {database}")
