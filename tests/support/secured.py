"""A broker that requires TLS and a login, and allows nothing without an ACL, for tests of access."""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from balajoin.config.models import Kafka
from balajoin.embedded import EmbeddedKafka
from balajoin.spark.jars import default_cache, fetch

# Holds all characters that need care in a JAAS line
PASSWORD = "p\"a'ss \\ w;ord=$é"
_SUPER_USER = "me"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TIMEOUT_S = 10


@dataclass(frozen=True)
class Acl:
    operation: str
    kind: str
    name: str
    prefixed: bool = False


@dataclass(frozen=True)
class SecuredBroker:
    broker: EmbeddedKafka
    folder: Path

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.internal_servers})

    def options(self, user: str = _SUPER_USER, password: str = PASSWORD, mechanism: str = "PLAIN") -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.folder / "ca.pem"),
        }

    def client(self, user: str = _SUPER_USER, password: str = PASSWORD, mechanism: str = "PLAIN") -> Kafka:
        return Kafka(bootstrap_servers=self.broker.bootstrap_servers, options=self.options(user, password, mechanism))

    def add_user(self, name: str, password: str) -> None:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsert = UserScramCredentialUpsertion(name, credential, password.encode())
        self.admin.alter_user_scram_credentials([upsert])[name].result(timeout=_TIMEOUT_S)

    def allow(self, user: str, acls: Iterable[Acl]) -> None:
        for future in self.admin.create_acls([_binding(user, acl) for acl in acls]).values():
            future.result(timeout=_TIMEOUT_S)

    def take_back(self, user: str, acls: Iterable[Acl]) -> None:
        filters = [_binding(user, acl, AclBindingFilter) for acl in acls]
        for future in self.admin.delete_acls(filters).values():
            assert future.result(timeout=_TIMEOUT_S), "there was no such ACL"


def _binding(user: str, acl: Acl, kind: type = AclBinding) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL
    operation = AclOperation[acl.operation.upper()]
    resource = ResourceType[acl.kind.upper()]
    return kind(resource, acl.name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    make_certificates(folder)
    login = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{_SUPER_USER}="{escaped(PASSWORD)}";'
    )
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **_tls(folder),
        "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "listener.name.client.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "auto.create.topics.enable": "true",  # looking up a topic must not create it
        "super.users": f"User:ANONYMOUS;User:{_SUPER_USER}",  # only the broker itself connects without a login
    }
    jars = fetch("broker", default_cache(os.environ))
    with EmbeddedKafka(folder / "broker", jars, properties=properties) as broker:
        yield SecuredBroker(broker, folder)


@contextmanager
def broker_that_asks_for_certificates(folder: Path, certificates: Path) -> Iterator[EmbeddedKafka]:
    """A broker that identifies clients by their certificates, and allows these clients everything."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **_tls(certificates),
        "listener.name.client.ssl.client.auth": "required",
    }
    with EmbeddedKafka(folder, fetch("broker", default_cache(os.environ)), properties=properties) as broker:
        yield broker


def _tls(folder: Path) -> dict[str, str]:
    files = {"keystore": folder / "broker.pem", "truststore": folder / "ca.pem"}
    types = {f"listener.name.client.ssl.{kind}.type": "PEM" for kind in files}
    return types | {f"listener.name.client.ssl.{kind}.location": str(path) for kind, path in files.items()}


def make_certificates(folder: Path) -> None:
    """Writes ca.pem, broker.pem with the broker's key and certificate, and client.pem and client.key."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name, subject in (("ca", "/CN=tests"), ("broker", "/CN=localhost"), ("client", "/CN=client")):
        openssl("req", "-x509" if name == "ca" else "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject,
                "-keyout", f"{name}.key", "-out", "ca.pem" if name == "ca" else f"{name}.csr",
                *(["-days", "3650"] if name == "ca" else []))  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("broker", "client"):
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "3650", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
    (folder / "broker.pem").write_text((folder / "broker.key").read_text() + (folder / "broker.crt").read_text())
    (folder / "client.pem").write_text((folder / "client.crt").read_text())


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
