"""moto, changed so that a client can be tested against it on one machine.

The proxy in front of moto changes no request, so that signatures stay valid. It passes its own
parameters in headers that are not signed. Each function here describes what EC2 does, and what moto
5.2.1 does instead.

This process imports moto, which takes more than a second, and then forks for each line of its standard
input: a request as JSON. It prints the id of the new process, which listens. It ends with its standard
input, and the forks end with it.
"""

# The types of the replaced functions of moto are not exported.
# ruff: noqa: ANN401

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import os
import re
import signal
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.responses import ActionResult
from moto.ec2 import utils
from moto.ec2.exceptions import (
    DependencyViolationError,
    EC2ClientError,
    InvalidParameterCombination,
    InvalidSecurityGroupNotFoundError,
    OperationNotPermitted4,
)
from moto.ec2.models import amis, elastic_network_interfaces, instance_types, instances, security_groups
from moto.ec2.responses.instances import InstanceResponse
from moto.moto_api._internal import mock_random
from moto.server import main

TRUSTED = "Credential=AKIALOOPBACKMACHINES/"
COUNT = "X-Testkit-Count"
STATES = "X-Testkit-All-States"
KEEP = "X-Testkit-Keep"


def use_loopback_addresses(prefix: str) -> None:
    """moto draws public addresses from AWS's own ranges, to which no test may ever connect."""
    numbers = itertools.cycle(range(1, 250 * 250))

    def next_address() -> str:
        number = next(numbers)
        return f"{prefix}.{number // 250}.{1 + number % 250}"

    elastic_network_interfaces.random_public_ip = next_address


def use_images(path: str) -> None:
    """EC2 returns the number and the alias of an image's owner, and the size of its snapshot.

    moto calls all owners amazon, and all snapshots have 15 GiB.
    """
    with open(path, encoding="utf-8") as file:
        images: list[dict[str, Any]] = json.load(file)

    def load(backend: Any) -> None:
        for image in images:
            facts = dict(image)
            snapshot_gib = facts.pop("snapshot_gib")
            facts["creation_date"] = amis.parse_timestamp(facts["creation_date"])
            ami = amis.Ami(backend, **facts)
            ami.snapshot_gib = snapshot_gib
            backend.amis[ami.id] = ami

    def mappings(ami: Any) -> list[dict[str, Any]]:
        if ami.root_device_name is None:
            return []
        volume = {
            "SnapshotId": ami.ebs_snapshot.id,
            "VolumeSize": getattr(ami, "snapshot_gib", 15),
            "DeleteOnTermination": True,
            "VolumeType": "gp3",
        }
        return [{"DeviceName": ami.root_device_name, "Ebs": volume}]

    amis.AmiBackend._load_amis = load
    amis.Ami.block_device_mappings = property(mappings)


def sell_a_few_families() -> None:
    """A region has 1,263 types, and moto needs seconds of processor time to list them.

    Here moto offers the types with accelerators, and some families of the others.
    """
    families = {"c7a", "c7g", "c7i", "m7a", "m7g", "m7i", "r7i", "t3"}
    accelerated = ("dl", "g", "inf", "p", "trn", "vt")
    backend = instance_types.InstanceTypeBackend
    backend.instance_types = [
        kind
        for kind in backend.instance_types
        if kind.name.split(".")[0] in families or kind.name.startswith(accelerated)
    ]


def know_filters() -> None:
    """EC2 knows these filters of DescribeInstances. moto answers 500 to them, or finds nothing."""
    utils.filter_dict_attribute_mapping.update(
        {
            "client-token": "client_token",
            "instance-lifecycle": "lifecycle",
            "availability-zone": "_placement.zone",
            "spot-instance-request-id": "spot_instance_request_id",
            "network-interface.subnet-id": "subnet_id",
            "network-interface.vpc-id": "vpc_id",
        }
    )
    known = utils.passes_filter_dict

    def passes(instance: Any, filters: dict[str, Any]) -> bool:
        wanted = dict(filters)
        # moto compares only with the first group, and finds none if the groups belong to an
        # interface.
        for name in ("instance.group-id", "group-id", "network-interface.group-id"):
            groups = wanted.pop(name, None)
            if groups is not None and not {group.id for group in instance.security_groups} & set(groups):
                return False
        return known(instance, wanted)

    utils.passes_filter_dict = passes


def launch_as_told() -> None:
    """EC2 launches as many as it can between MinCount and MaxCount; moto launches MinCount.

    The proxy passes the number of instances that have room.
    """
    plain = InstanceResponse._get_param

    def parameter(response: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "MinCount" and response.headers.get(COUNT):
            return response.headers[COUNT]
        return plain(response, name, *args, **kwargs)

    InstanceResponse._get_param = parameter


def describe_whole() -> None:
    """The proxy makes pages and hides later states.

    So moto must return all instances in all states.
    """

    def describe(response: Any) -> ActionResult:
        response.error_on_dryrun()
        filters = response._filters_from_querystring()
        if response.headers.get(STATES):
            filters.pop("instance-state-name", None)
            filters.pop("instance-state-code", None)
        ids = response._get_param("InstanceIds", [])
        if ids and response._get_param("MaxResults"):
            raise InvalidParameterCombination(
                "The parameter instancesSet cannot be used with the parameter maxResults"
            )
        backend = response.ec2_backend
        found = (
            backend.get_reservations_by_instance_ids(ids, filters)
            if ids
            else backend.describe_instances(filters)
        )
        return ActionResult({"Reservations": found})

    InstanceResponse.describe_instances = describe


def check_launch(backend: Any, image_id: str, user_data: Any, kwargs: dict[str, Any]) -> None:
    """EC2 refuses these launches, with these codes. moto launches."""
    kind = kwargs.get("instance_type")
    if user_data and len(base64.b64decode(user_data.as_bytes())) > 16384:
        raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
    subnets = [
        kwargs.get("subnet_id"),
        *(interface.get("SubnetId") for interface in kwargs.get("nics") or []),
    ]
    subnet = next((backend.get_subnet(subnet) for subnet in subnets if subnet), None)
    zone = subnet.availability_zone if subnet else kwargs.get("placement")
    offered = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
    if zone and not any(offer["InstanceType"] == kind and offer["Location"] == zone for offer in offered):
        zones = ", ".join(sorted(offer["Location"] for offer in offered if offer["InstanceType"] == kind))
        raise EC2ClientError(
            "Unsupported",
            f"Your requested instance type ({kind}) is not supported in your requested Availability Zone "
            f"({zone}). "
            f"Please retry your request by not specifying an Availability Zone or choosing {zones}.",
        )
    image = next(iter(backend.describe_images(ami_ids=[image_id])), None) if image_id else None
    facts = instance_types.INSTANCE_TYPES.get(kind)
    if image is None or facts is None:
        return
    architectures = facts["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in architectures:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            f"architecture '{image.architecture}' of the specified AMI. Specify an instance type and an AMI "
            "that have matching architectures, and try again.",
        )
    for device in kwargs.get("block_device_mappings") or []:
        size = device.get("Ebs", {}).get("VolumeSize")
        least = getattr(image, "snapshot_gib", 0)
        if device["DeviceName"] == image.root_device_name and size and int(size) < least:
            raise EC2ClientError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot '{image.ebs_snapshot.id}', "
                f"expect size>= {least}GB",
            )


def choose_subnet(backend: Any, kwargs: dict[str, Any]) -> None:
    """EC2 uses the zone's default subnet if a launch names none. moto invents an address."""
    interfaces = kwargs.get("nics") or []
    if kwargs.get("subnet_id") or any("SubnetId" in one or "NetworkInterfaceId" in one for one in interfaces):
        return
    defaults = backend.get_default_subnets()
    zone = kwargs.get("placement") or f"{backend.region_name}a"
    if zone not in defaults:
        raise EC2ClientError("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
    if interfaces:
        interfaces[0]["SubnetId"] = defaults[zone].id
    else:
        kwargs["subnet_id"] = defaults[zone].id


def launch_faithfully() -> None:
    """Add what moto leaves out when it creates an instance.

    - In EC2, an instance has the security groups of its interface, which must exist. moto creates
      missing ones.
    - By default, EC2 deletes the first interface with the instance. moto keeps it.
    - Interfaces get their tags.
    - A spot instance names its request.
    """
    plain = instances.InstanceBackend.run_instances

    def run(backend: Any, image_id: str, count: int, user_data: Any, groups: list[str], **kwargs: Any) -> Any:
        choose_subnet(backend, kwargs)
        check_launch(backend, image_id, user_data, kwargs)
        tags = dict((kwargs.get("tags") or {}).get("network-interface", {}))
        for interface in kwargs.get("nics") or []:
            for group in interface.get("Groups") or []:
                if backend.get_security_group_from_id(group) is None:
                    raise InvalidSecurityGroupNotFoundError(group)
            if "NetworkInterfaceId" not in interface:
                interface.setdefault("DeleteOnTermination", True)
        reservation = plain(backend, image_id, count, user_data, groups, **kwargs)
        for instance in reservation.instances:
            for interface in instance.nics.values():
                interface.add_tags(tags)
                if not kwargs.get("nics"):
                    interface.delete_on_termination = True
            share_groups(instance)
            if instance.lifecycle == "spot":
                instance.spot_instance_request_id = "sir-" + instance.id[-8:]
        return reservation

    instances.InstanceBackend.run_instances = run


def hold_groups() -> None:
    """Know who uses a security group.

    - In EC2, a group cannot be deleted while an interface has it, or a rule of another group names it:
      https://docs.aws.amazon.com/vpc/latest/userguide/deleting-security-groups.html
      moto deletes it.
    - An interface has the groups that it was given last, and its instance the same:
      https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyNetworkInterfaceAttribute.html
      In moto, the instance keeps those of its launch, and its interface has both.
    - A group that an interface is given must exist, and be of the interface's network.
    """
    delete = security_groups.SecurityGroupBackend._delete_security_group
    modify = elastic_network_interfaces.NetworkInterfaceBackend.modify_network_interface_attribute

    def is_named(group: Any, other: Any) -> bool:
        rules = [*other.ingress_rules, *other.egress_rules]
        return group.id != other.id and any(rule.source_group.get("GroupId") == group.id for rule in rules)

    def delete_unused(backend: Any, vpc_id: str | None, group_id: str) -> None:
        group = backend.get_security_group_from_id(group_id)
        everything = [one for groups in backend.groups.values() for one in groups.values()]
        users = [interface for interface in backend.enis.values() if group in interface._group_set]
        if users or any(is_named(group, other) for other in everything):
            raise DependencyViolationError(f"resource {group_id} has a dependent object")
        delete(backend, vpc_id, group_id)

    def change(backend: Any, eni_id: str, group_ids: list[str], *args: Any, **kwargs: Any) -> None:
        interface = backend.get_network_interface(eni_id)
        for group_id in group_ids:
            group = backend.get_security_group_from_id(group_id)
            if group is None:
                raise InvalidSecurityGroupNotFoundError(group_id)
            if group.vpc_id != interface.vpc_id:
                raise EC2ClientError(
                    "InvalidParameter", "You have specified two resources that belong to different networks."
                )
        modify(backend, eni_id, group_ids, *args, **kwargs)
        if group_ids and interface.instance is not None:
            share_groups(interface.instance)

    security_groups.SecurityGroupBackend._delete_security_group = delete_unused
    elastic_network_interfaces.NetworkInterfaceBackend.modify_network_interface_attribute = change
    elastic_network_interfaces.NetworkInterface.group_set = property(lambda interface: interface._group_set)


def share_groups(instance: Any) -> None:
    """An instance has the groups of its interfaces."""
    groups = {group.id: group for interface in instance.nics.values() for group in interface._group_set}
    instance.security_groups = list(groups.values())


def know_more_of_interfaces() -> None:
    """EC2 knows these filters of DescribeNetworkInterfaces. moto answers 500 to them."""
    known = elastic_network_interfaces.NetworkInterface.get_filter_value

    def value(interface: Any, name: str, method: str | None = None) -> Any:
        if name == "status":
            return "in-use" if interface.instance else "available"
        if name == "attachment.status":
            return "attached" if interface.instance else None
        return known(interface, name, method)

    elastic_network_interfaces.NetworkInterface.get_filter_value = value


def end_later() -> None:
    """EC2 terminates an instance a while after the call; moto does so at once.

    The proxy terminates it when its time has come; this call is checked alone.
    """
    plain = InstanceResponse.terminate_instances

    def terminate(response: Any) -> ActionResult:
        if not response.headers.get(KEEP):
            return plain(response)
        response.error_on_dryrun()
        ids = response._get_param("InstanceIds", [])
        if not ids:
            raise InvalidParameterCombination("No instances specified")
        found = response.ec2_backend.get_multi_instances_by_id(ids)
        for instance in found:
            if instance.disable_api_termination is True:
                raise OperationNotPermitted4(instance.id)
        ending = [
            {
                "InstanceId": instance.id,
                "CurrentState": {"Code": 32, "Name": "shutting-down"},
                "PreviousState": {"Code": instance.state_code, "Name": instance.state},
            }
            for instance in found
        ]
        return ActionResult({"TerminatingInstances": ending})

    InstanceResponse.terminate_instances = terminate


def size_disks_of_images() -> None:
    """Accept a disk of the image without a size.

    AWS documents: a mapping of a device that the image has may leave out the size, and has that of the
    image then. moto refuses it. The disk gets 8 GiB here.
    """
    validate = InstanceResponse._validate_block_device_mapping

    def fill(mapping: dict[str, Any]) -> None:
        disk = mapping.get("Ebs")
        if disk and not disk.get("VolumeSize") and not disk.get("SnapshotId"):
            disk["VolumeSize"] = "8"
        validate(mapping)

    InstanceResponse._validate_block_device_mapping = staticmethod(fill)


def terminate_twice() -> None:
    """A second TerminateInstances changes nothing in EC2, and a terminated instance has no groups.

    In moto the second one fails, because the interface is gone, and the instance keeps its groups.
    """
    plain = instances.Instance.terminate

    def terminate(instance: Any) -> Any:
        if instance.state == "terminated":
            return instances.InstanceState("terminated", 48)
        before = plain(instance)
        instance.security_groups = []
        return before

    instances.Instance.terminate = terminate


def match_offerings() -> None:
    """EC2 accepts wildcards in DescribeInstanceTypeOfferings. In moto they match nothing."""

    @functools.lru_cache(maxsize=64)
    def pattern(values: tuple[str, ...]) -> re.Pattern[str]:
        return re.compile("|".join(map(utils.simple_aws_filter_to_re, values)))

    @functools.lru_cache(maxsize=1 << 16)
    def is_wanted(value: str, values: tuple[str, ...]) -> bool:
        return pattern(values).match(value) is not None

    def matches(backend: Any, offering: dict[str, Any], filters: dict[str, Any], location_type: str) -> bool:
        keys = {"instance-type": "InstanceType", "location": "Location"}
        for name, values in filters.items():
            wanted = tuple(values) if isinstance(values, list) else (values,)
            if name in keys and not is_wanted(offering.get(keys[name], ""), wanted):
                return False
        return True

    instance_types.InstanceTypeOfferingBackend.matches_filters = matches


def trust_the_machines() -> None:
    """The hypervisor is not a client of EC2, so no policy applies to it."""
    plain = ActionAuthenticatorMixin._authenticate_and_authorize_action

    def authorize(response: Any, *args: Any) -> None:
        # EC2 verifies the signature of a form as it arrived. moto encodes the form again, with a
        # plus for each space, where the SDK has written %20.
        if not response.raw_body and response.form_data:
            pairs = list(response.form_data.items(multi=True))
            response.raw_body = urlencode(pairs, quote_via=quote, safe="-_.~").encode()
        if TRUSTED not in response.headers.get("Authorization", ""):
            plain(response, *args)

    ActionAuthenticatorMixin._authenticate_and_authorize_action = authorize


class Request(TypedDict):
    """What one cloud needs of its moto."""

    host: str
    port: int
    # The file with the images.
    images: str
    # The first two numbers of public addresses.
    public: str
    # Its home and working folder, and its log in the folder.
    folder: str
    log: str


def listen(request: Request) -> None:
    """Serve until the end of the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ["HOME"] = request["folder"]
    os.chdir(request["folder"])
    # Forks would draw the same identifiers.
    mock_random.seed()
    use_loopback_addresses(request["public"])
    use_images(request["images"])
    sell_a_few_families()
    know_filters()
    launch_as_told()
    describe_whole()
    launch_faithfully()
    hold_groups()
    know_more_of_interfaces()
    end_later()
    size_disks_of_images()
    terminate_twice()
    match_offerings()
    trust_the_machines()
    main(["-H", request["host"], "-p", str(request["port"])])


def serve() -> None:
    """Fork for each request. The kernel removes forks that have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    forks = []
    # Not through a buffer, which a fork would have, too.
    with os.fdopen(os.dup(0), "rb", buffering=0) as requests:
        for line in requests:
            fork = os.fork()
            if fork == 0:
                requests.close()
                listen(json.loads(line))
                os._exit(1)
            forks.append(os.pidfd_open(fork))
            os.write(1, f"{fork}\n".encode())
    for fork in forks:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fork, signal.SIGKILL)


if __name__ == "__main__":
    serve()
