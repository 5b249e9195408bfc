"""Serves moto's STS and other services of AWS on loopback, prints its URL, and ends with its standard input.

GET /asked tells how many sessions of roles STS was asked for. POST /moto-api/reset-auth with 0 has moto check signatures and policies from then on.
"""

import json
import sys
import threading

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

asked = 0


def counted(app):
    def answer(environ, start_response):
        global asked
        if environ["PATH_INFO"] == "/asked":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(asked).encode()]
        # Questions to STS are the only ones to its root without a signature.
        if environ["PATH_INFO"] == "/" and "HTTP_AUTHORIZATION" not in environ:
            asked += 1
        return app(environ, start_response)

    return answer


server = make_server("127.0.0.1", 0, counted(DomainDispatcherApplication(create_backend_app)), threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.port}"
iam = boto3.client("iam", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
for role in ["readers", "ops"]:
    iam.create_role(RoleName=role, AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName=role, PolicyName="all", PolicyDocument=json.dumps(everything))
print(url, flush=True)
sys.stdin.read()
