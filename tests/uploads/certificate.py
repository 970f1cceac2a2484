"""A certificate for 127.0.0.1 that nobody signed, and its key: argv[1] and argv[2]."""

import datetime, ipaddress, sys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

key = ec.generate_private_key(ec.SECP256R1())
name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "uncore-trace test")])
now = datetime.datetime.now(datetime.timezone.utc)
day = datetime.timedelta(days=1)
builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
builder = builder.public_key(key.public_key()).serial_number(1)
builder = builder.not_valid_before(now - day).not_valid_after(now + day)
host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
cert = builder.add_extension(host, critical=False).sign(key, hashes.SHA256())
pem = serialization.Encoding.PEM
with open(sys.argv[1], "wb") as file:
    file.write(cert.public_bytes(pem))
with open(sys.argv[2], "wb") as file:
    plain = serialization.NoEncryption()
    file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
