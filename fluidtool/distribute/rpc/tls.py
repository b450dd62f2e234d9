"""Why a TLS connection fails, in words: gRPC itself says only that a peer does not answer.

A role's own certificate is checked before it is used. When a peer does not answer, one connection outside of gRPC finds out
whether that is because of certificates.
"""

from __future__ import annotations

import socket
import ssl
from typing import Protocol

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.errors import Location, UsageError

PATIENCE = 2.0
RENEW = "write the job again ('fluidtool transpile --distribute') to get new certificates for all roles"
OTHER_PROTOCOL = ("WRONG_VERSION", "RECORD_LAYER", "PACKET_LENGTH")
SAME_JOB = "all roles need the certificates of the same job"


class Credentials(Protocol):
    """What a role has: paths of PEM files, "" for none, and the name that certificates of servers have in place of the host."""

    @property
    def certificate(self) -> str:
        """Its own certificate."""

    @property
    def key(self) -> str:
        """The key of its own certificate."""

    @property
    def authorities(self) -> str:
        """Whom it believes."""

    @property
    def peer_name(self) -> str:
        """The name of servers; "": that of the host."""

    @property
    def encrypted(self) -> bool:
        """Whether it uses TLS."""


def check_own_certificate(own: Credentials) -> None:
    """Raise UsageError for a certificate that does not belong to its key, or is not valid at this moment."""
    if not own.certificate:
        return
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(own.certificate, own.key)
    except ssl.SSLError as error:
        raise UsageError(
            f"{own.certificate} and {own.key} are not a certificate and its key ({_reason(error)}); {SAME_JOB}",
            location=Location(own.certificate),
        ) from error
    fault = _handshake_fault(server, own.certificate)
    if fault:
        raise UsageError(
            f"the certificate {own.certificate} is not valid: {fault}; {RENEW}",
            location=Location(own.certificate),
        )


def _handshake_fault(server: ssl.SSLContext, certificate: str) -> str:
    """What somebody who trusts this very certificate finds wrong with it; "" for nothing."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller, answering = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for side in (caller, answering, caller):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def peer_fault(endpoint: str, own: Credentials, patience: float = 3 * PATIENCE) -> str:
    """Why a server that does not answer cannot be talked to, as far as TLS is the reason and that shows within so many seconds;
    "" for any other.
    """
    host, port = host_and_port(endpoint)
    each = min(patience / 3, PATIENCE)  # to connect, to shake hands, and to hear what the server says
    try:
        with (
            socket.create_connection((host, port), each) as connection,
            _context(own).wrap_socket(connection, server_hostname=own.peer_name or host) as encrypted,
        ):
            return _answer_fault(encrypted, own)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not accepted ({error.verify_message}); {SAME_JOB}, valid at this time: {RENEW}"
    except ssl.SSLError as error:
        speaks = not any(sign in _reason(error) for sign in OTHER_PROTOCOL)
        return f"it does not use TLS, and this role does; {SAME_JOB}" if own.encrypted and not speaks else ""
    except OSError:
        return ""


def _answer_fault(encrypted: ssl.SSLSocket, own: Credentials) -> str:
    """After a handshake: gRPC's server speaks first, or closes the connection because of our certificate."""
    if not own.encrypted:
        return f"it uses TLS, and this role does not; {SAME_JOB}"
    try:
        spoken = encrypted.recv(1)
    except TimeoutError:
        return ""
    except OSError:
        spoken = b""
    if spoken:
        return ""
    if not own.certificate:
        return f"it takes only peers that have a certificate, and this role has none; {SAME_JOB}"
    return f"it does not accept the certificate of this role ({own.certificate}); {SAME_JOB}"


def _context(own: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if not own.encrypted:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    if own.authorities:
        context.load_verify_locations(own.authorities)
    else:
        context.load_default_certs()
    if own.certificate:
        context.load_cert_chain(own.certificate, own.key)
    return context


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)
