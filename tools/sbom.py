"""Write what users of a release install as a CycloneDX document (SBOM). `make sbom` runs this.

It lists both packages with all their extras: every distribution that `requirements/all.txt` pins, and the jars that
Spark fetches. Licences are what the installed distributions tell of themselves; of a distribution that is not installed
here, because it is for another Python or platform, the licence is left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.spdx import is_supported_id
from packageurl import PackageURL

import airflow_provider_fluss
import fluss_tiering
from fetch_spark_jars import SHA256
from fluss_tiering.spark.versions import packages
from pins import Pin, read_pins

ROOT: Final = Path(__file__).resolve().parent.parent
PROVIDER, ENGINE = "airflow-provider-fluss", "fluss-tiering"
SCHEMA: Final = SchemaVersion.V1_6
_OWN_LICENSE: Final = "Apache-2.0"
_JARS_LICENSE: Final = "Apache-2.0"
"""That of Iceberg and of the SQLite driver."""
_UNTOLD: Final = {"openlineage-sql": _OWN_LICENSE}
"""The licences of distributions whose metadata name none, as their source archives have them."""
_MARKER: Final = f"{ENGINE}:marker"
_LICENSES: Final = LicenseFactory()


def bom(pins: Sequence[Pin]) -> Bom:
    """Return the document.

    Args:
        pins: What is installed beside the two packages.
    """
    provider = _own(PROVIDER, airflow_provider_fluss.__version__, ComponentType.APPLICATION)
    engine = _own(ENGINE, fluss_tiering.__version__, ComponentType.LIBRARY)
    jars = list(_jars(pins))
    made = Bom()
    made.metadata.component = provider
    by_name: defaultdict[str, list[Component]] = defaultdict(list, {PROVIDER: [provider], ENGINE: [engine]})
    components = [_distribution(pin) for pin in pins]
    for pin, component in zip(pins, components, strict=True):
        by_name[pin.name].append(component)
    needs: defaultdict[str, list[Component]] = defaultdict(list, {PROVIDER: [engine], ENGINE: jars})
    for pin, component in zip(pins, components, strict=True):
        for name in pin.needed_by:
            needs[name].append(component)
    made.components.update([engine, *components, *jars])
    for name, some in by_name.items():
        for component in some:
            made.register_dependency(component, needs[name])
    # Jars need no other component: each holds what it needs.
    for jar in jars:
        made.register_dependency(jar)
    return made


def to_json(document: Bom) -> str:
    """Return a document as JSON of the schema's version `SCHEMA`."""
    return str(make_outputter(document, OutputFormat.JSON, SCHEMA).output_as_string(indent=2))


def _own(name: str, version: str, kind: ComponentType) -> Component:
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=kind,
        purl=purl,
        bom_ref=str(purl),
        licenses=[_LICENSES.make_from_string(_OWN_LICENSE)],
    )


def _distribution(pin: Pin) -> Component:
    """Return the component of a pin. It has one hash for each of its files: a user installs one of them."""
    purl = PackageURL("pypi", name=pin.name, version=pin.version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in pin.hashes]
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{pin.name}/{pin.version}/#files"),
        comment="one hash for each file of this version",
        hashes=hashes,
    )
    return Component(
        name=pin.name,
        version=pin.version,
        purl=purl,
        bom_ref=str(purl),
        licenses=_licenses(pin),
        external_references=[files],
        properties=[Property(name=_MARKER, value=pin.marker)] if pin.marker else [],
    )


def _licenses(pin: Pin) -> list[License]:
    """Return the licences that the installed distribution tells; none if another version or none is installed."""
    try:
        metadata = importlib.metadata.metadata(pin.name)
    except importlib.metadata.PackageNotFoundError:
        return []
    if metadata["Version"] != pin.version:
        return []
    told = _license_texts(metadata) or filter(None, [_UNTOLD.get(pin.name)])
    return [_LICENSES.make_from_string(text) for text in told]


def _license_texts(metadata: importlib.metadata.PackageMetadata) -> Sequence[str]:
    if "License-Expression" in metadata:
        return [metadata["License-Expression"]]
    text = next(iter(metadata.get_all("License", [])), "").strip()
    if is_supported_id(text):
        return [text]
    # Several classifiers do not tell whether one or all of the licences apply.
    told = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier", []) if each.startswith("License ::")]
    told = [each for each in told if each != "OSI Approved"]
    if told:
        return told
    # Some hold the whole text of the licence.
    return [text] if text and "\n" not in text else []


def _jars(pins: Sequence[Pin]) -> Iterator[Component]:
    (spark,) = [pin.version for pin in pins if pin.name == "pyspark"]
    for package in packages(".".join(spark.split(".")[:2])):
        group, artifact, version = package.split(":")
        purl = PackageURL("maven", group, artifact, version)
        yield Component(
            group=group,
            name=artifact,
            version=version,
            purl=purl,
            bom_ref=str(purl),
            licenses=[_LICENSES.make_from_string(_JARS_LICENSE)],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=SHA256[package])],
        )


def main() -> None:
    """Write the document and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / f"{ENGINE}-{fluss_tiering.__version__}.cdx.json")
    output = parser.parse_args().output
    document = bom(read_pins(ROOT / "requirements" / "all.txt"))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(to_json(document) + "\n")
    print(f"{output}: {len(document.components)} components")


if __name__ == "__main__":
    main()
