"""Sends a message with smtplib: HOST PORT BYTES [CA]. With CA, over TLS from the first byte. Prints the last answer."""
import smtplib
import ssl
import sys

host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if len(sys.argv) > 4:
    context = ssl.create_default_context(cafile=sys.argv[4])
    client = smtplib.SMTP_SSL(host, port, timeout=60, context=context)
else:
    client = smtplib.SMTP(host, port, timeout=60)
client.ehlo()
client.mail("a@mail.example")
client.rcpt("b@mail.example")
line = "x" * 98
print(client.data("\r\n".join([line] * (count // 100)))[1].decode())
client.quit()
