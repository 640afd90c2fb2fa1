#!/usr/bin/env python3
"""Writes an OCI image with a single layer as a tar file: packaging/oci.py LAYER.tar.gz CONFIG.json NAME ARCHITECTURE OUT.tar

LAYER is a gzipped tar file of the root folder. CONFIG has the settings of a container (OCI image-spec, "config": Env, Cmd, Labels, ...).
Apptainer, Podman, Docker 25 or later, Skopeo and Umoci read the result as oci-archive:OUT.tar. Equal inputs produce equal bytes."""

import gzip
import hashlib
import io
import json
import sys
import tarfile

BLOCK = 1 << 20


def digest(stream):
    """Returns the sha256 and the size of the rest of a stream."""
    sum_, size = hashlib.sha256(), 0
    while block := stream.read(BLOCK):
        sum_.update(block)
        size += len(block)
    return f"sha256:{sum_.hexdigest()}", size


def descriptor(kind, content):
    """Returns the entry for a JSON blob in an index or a manifest."""
    sum_, size = digest(io.BytesIO(content))
    return {"mediaType": f"application/vnd.oci.image.{kind}.v1+json", "digest": sum_, "size": size}


def encoded(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def add(out, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))


def add_folder(out, name):
    """Adds a folder. Some readers, such as Apptainer's, do not create folders themselves."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    out.addfile(entry)


def blob(sum_):
    return "blobs/sha256/" + sum_.removeprefix("sha256:")


def main(layer, config, name, architecture, out):
    with open(layer, "rb") as file:
        packed, size = digest(file)
    with gzip.open(layer) as file:
        plain, _ = digest(file)
    with open(config, encoding="utf-8") as file:
        start = json.load(file)
    image = encoded({"architecture": architecture, "os": "linux", "config": start,
                     "rootfs": {"type": "layers", "diff_ids": [plain]}})
    manifest = encoded({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config", image),
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": packed, "size": size}]})
    named = descriptor("manifest", manifest) | {"annotations": {"org.opencontainers.image.ref.name": name},
                                                "platform": {"architecture": architecture, "os": "linux"}}
    index = encoded({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]})
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
        add_folder(archive, "blobs")
        add_folder(archive, "blobs/sha256")
        add(archive, "oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
        add(archive, "index.json", index)
        for content in (image, manifest):
            add(archive, blob(digest(io.BytesIO(content))[0]), content)
        entry = tarfile.TarInfo(blob(packed))
        entry.size = size
        with open(layer, "rb") as file:
            archive.addfile(entry, file)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
