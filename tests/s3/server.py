"""A real S3 server in memory (moto's) at the address it is given, with a bucket `robust`. Says where it listens; then answers the
lines it reads: `uploads` the number of multipart uploads that were begun and not ended, `drop KEY`
removes an object. Ends with its input."""
import sys

import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address=sys.argv[1], port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1",
                  aws_access_key_id="test", aws_secret_access_key="test")
s3.create_bucket(Bucket="robust")
print(url, flush=True)
for line in sys.stdin:
    match line.split():
        case ["uploads"]:
            print(len(s3.list_multipart_uploads(Bucket="robust").get("Uploads", [])), flush=True)
        case ["drop", key]:
            s3.delete_object(Bucket="robust", Key=key)
            print("dropped", flush=True)
server.stop()
