"""Certificates of a job: an authority that signs one certificate per role and is then forgotten.

Who has one of them is a role of this job, wherever it runs. So they do not name hosts, but all the same PEER_NAME, which roles
look for in place of the host; programs can be moved to other machines without new certificates. Where a job's
certificates are: ROLE/tls in its folder.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from fluidtool.errors import DeviceError, Hint
from fluidtool.records import dataclass

FOLDER = "tls"
CERTIFICATE, KEY, AUTHORITIES = "certificate.pem", "key.pem", "authorities.pem"
PEER_NAME = "role.fluidtool.invalid"
VALID = datetime.timedelta(days=365)
SKEW = datetime.timedelta(days=1)  # a clock may be behind by so much
VARIABLES = {
    "FLUIDTOOL_TLS_CERTIFICATE": CERTIFICATE,
    "FLUIDTOOL_TLS_KEY": KEY,
    "FLUIDTOOL_TLS_AUTHORITIES": AUTHORITIES,
}
DECIDED = ("FLUIDTOOL_TLS_CERTIFICATE", "FLUIDTOOL_TLS_AUTHORITIES", "FLUIDTOOL_INSECURE")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Those of one role, as PEM: its own, its key, and the authority that signs those of its peers."""

    certificate: bytes
    key: bytes = field(repr=False)
    authorities: bytes

    def files(self) -> dict[str, bytes]:
        """The contents of its folder by name."""
        return {CERTIFICATE: self.certificate, KEY: self.key, AUTHORITIES: self.authorities}


def can_make_certificates() -> bool:
    """Whether the package cryptography is there."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        return False
    return True


def make_certificates(
    roles: Sequence[str], now: datetime.datetime | None = None, valid: datetime.timedelta = VALID
) -> dict[str, Certificates]:
    """A new authority and a certificate for each role, by the role's name; valid from a day ago for `valid`.

    Keys are on the curve P-256. The authority's key is not kept. Raises DeviceError without the package cryptography.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise DeviceError(
            "certificates need the package cryptography, which is not installed",
            hint=Hint(
                "install it with: pip install 'fluidtool[dist]', or make the job with JobRequest(tls=False)",
                "install it with: pip install 'fluidtool[dist]', or give --no-tls",
            ),
        ) from error
    now = now or datetime.datetime.now(datetime.UTC)
    period = now - SKEW, now + valid
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, period)
    encoding = serialization.Encoding.PEM
    made = {}
    for role in roles:
        key = ec.generate_private_key(ec.SECP256R1())
        text = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        certificate = _certificate(role, key.public_key(), authority, authority_key, period)
        made[role] = Certificates(certificate.public_bytes(encoding), text, authority.public_bytes(encoding))
    return made


def _builder(name: str, issuer: str, public_key: Any, period: tuple[datetime.datetime, datetime.datetime]) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(issuer)).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(period[0])
    return builder.not_valid_after(period[1])


AUTHORITY = "authority of a fluidtool job"


def _authority(key: Any, period: tuple[datetime.datetime, datetime.datetime]) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    builder = _builder(AUTHORITY, AUTHORITY, key.public_key(), period)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256())


def _certificate(
    role: str, public_key: Any, authority: Any, key: Any, period: tuple[datetime.datetime, datetime.datetime]
) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

    builder = _builder(role, AUTHORITY, public_key, period)
    extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName([x509.DNSName(PEER_NAME)]), False),
        (x509.ExtendedKeyUsage([Usage.SERVER_AUTH, Usage.CLIENT_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
        (_usage(signs=False), True),
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())


def _usage(*, signs: bool) -> Any:
    from cryptography import x509

    uses = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **uses)


def certificate_variables(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a role uses the certificates in its folder; none where it has none, or where the environment
    says already how roles are guarded (certificates of its own, or FLUIDTOOL_INSECURE for peers without TLS).
    """
    place = folder.resolve() / FOLDER
    if not (place / CERTIFICATE).is_file() or any(environment.get(name, "0") not in ("", "0") for name in DECIDED):
        return {}
    paths = {variable: str(place / name) for variable, name in VARIABLES.items()}
    return {**paths, "FLUIDTOOL_TLS_PEER_NAME": PEER_NAME}
