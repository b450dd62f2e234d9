"""Why a TLS connection fails, in words: gRPC itself says only that a peer does not answer.

A role's own certificate is checked before it is used. When a peer does not answer, one connection outside of gRPC finds out
whether that is because of certificates.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from fluidtool.distribute.endpoints import host_and_port
from fluidtool.errors import Location, UsageError

if TYPE_CHECKING:
    from fluidtool.distribute.rpc.security import Security

PATIENCE = 2.0
RENEW = "write the job again ('fluidtool transpile --distribute') to get new certificates for all roles"
OTHER_PROTOCOL = ("WRONG_VERSION", "RECORD_LAYER", "PACKET_LENGTH")
SAME_JOB = "all roles need the certificates of the same job"


def check_own_certificate(security: Security) -> None:
    """Raise UsageError for a certificate that does not belong to its key, or is not valid at this moment."""
    if not security.certificate:
        return
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(security.certificate, security.key)
    except ssl.SSLError as error:
        raise UsageError(
            f"{security.certificate} and {security.key} are not a certificate and its key ({_reason(error)}); {SAME_JOB}",
            location=Location(security.certificate),
        ) from error
    fault = _handshake_fault(server, security.certificate)
    if fault:
        raise UsageError(
            f"the certificate {security.certificate} is not valid: {fault}; {RENEW}",
            location=Location(security.certificate),
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


def peer_fault(endpoint: str, security: Security) -> str:
    """Why a server that does not answer cannot be talked to, as far as TLS is the reason; "" for any other."""
    host, port = host_and_port(endpoint)
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as connection,
            _context(security).wrap_socket(connection, server_hostname=security.peer_name or host) as encrypted,
        ):
            return _answer_fault(encrypted, security)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not accepted ({error.verify_message}); {SAME_JOB}, valid at this time: {RENEW}"
    except ssl.SSLError as error:
        speaks = not any(sign in _reason(error) for sign in OTHER_PROTOCOL)
        return f"it does not use TLS, and this role does; {SAME_JOB}" if security.encrypted and not speaks else ""
    except OSError:
        return ""


def _answer_fault(encrypted: ssl.SSLSocket, security: Security) -> str:
    """After a handshake: gRPC's server speaks first, or closes the connection because of our certificate."""
    if not security.encrypted:
        return f"it uses TLS, and this role does not; {SAME_JOB}"
    try:
        spoken = encrypted.recv(1)
    except TimeoutError:
        return ""
    except OSError:
        spoken = b""
    if spoken:
        return ""
    if not security.certificate:
        return f"it takes only peers that have a certificate, and this role has none; {SAME_JOB}"
    return f"it does not accept the certificate of this role ({security.certificate}); {SAME_JOB}"


def _context(security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if not security.encrypted:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    if security.authorities:
        context.load_verify_locations(security.authorities)
    else:
        context.load_default_certs()
    if security.certificate:
        context.load_cert_chain(security.certificate, security.key)
    return context


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error)
