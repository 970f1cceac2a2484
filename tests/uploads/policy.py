"""Users of a store that may only write what a policy says: argv is the store's address, the policy, and names of
users. The policy is for the host HOST. Prints a line for each: name, key and secret.

Fails unless each user can write and read its own objects, and nobody else's.
"""

import sys
import boto3
from botocore.exceptions import ClientError

address, policy, *users = sys.argv[1:]


def client(service, key="testing", secret="testing"):
    return boto3.client(
        service, endpoint_url=address, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
    )


def is_allowed(act):
    try:
        act()
    except ClientError as error:
        if error.response["Error"]["Code"] != "AccessDenied":
            raise
        return False
    return True


iam, keys = client("iam"), {}
# The store asks for no permission until all of these requests have been made.
for user in users:
    iam.create_user(UserName=user)
    iam.put_user_policy(UserName=user, PolicyName="own", PolicyDocument=policy.replace("HOST", user))
    key = iam.create_access_key(UserName=user)["AccessKey"]
    keys[user] = [key["AccessKeyId"], key["SecretAccessKey"]]
for user in users:
    store = client("s3", *keys[user])
    other = next(name for name in users if name != user)
    hour = "fleet/one/cluster=lab/date=2026-01-01/hour=07"
    for directory, is_own in [
        (f"{hour}/host={user}", True),
        (f"{hour}/host={other}", False),
        (f"{hour}/host={user}2", False),
        (f"{hour}/host=2{user}", False),
        (hour, False),
        (f"{hour.replace('lab', 'other')}/host={user}", False),
        (f"other/{hour}/host={user}", False),
        # Where `*` stands for more than a part: no reader takes a name of this depth.
        (f"{hour}/host={other}/hour=07/host={user}", True),
    ]:
        at = {"Bucket": "bucket", "Key": f"{directory}/0_0.parquet"}
        for act, more in [("put_object", {"Body": b"x"}), ("get_object", {})]:
            found = is_allowed(lambda: getattr(store, act)(**at, **more))
            assert found == is_own, (user, act, at, found)
    assert not is_allowed(lambda: store.delete_object(Bucket="bucket", Key=f"{hour}/host={user}/0_0.parquet"))
    assert not is_allowed(lambda: store.list_objects_v2(Bucket="bucket"))
for user in users:
    print(user, *keys[user])
