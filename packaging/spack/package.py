# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems import cargo
from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Longhaul(CargoPackage):
    """Moves large files over long-distance networks at full speed, without manual tuning: GridFTP,
    FTP, HTTP, SFTP and S3, with parallel streams that tune themselves, verified and resumable."""

    homepage = "https://git.example.org/longhaul/longhaul"
    url = "https://git.example.org/longhaul/longhaul/archive/refs/tags/v0.1.0.tar.gz"
    git = "https://git.example.org/longhaul/longhaul.git"

    license("Apache-2.0 OR MIT", checked_by="longhaul")

    version("main", branch="main")
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    # On macOS longhaul is a client alone.
    with when("platform=linux"):
        variant("advisor", default=True, description="Install longhaul-advisor, the network-advice service")
        variant("lab", default=True, description="Install longhaul-lab, the WAN emulator and simulator")
        variant("queue", default=True, description="Install longhaul-queue, copies by a fleet of machines")

    depends_on("c", type="build")
    depends_on("rust@1.94:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openssl@3:")

    conflicts("platform=freebsd", msg="longhaul uses system calls of Linux or macOS")
    conflicts("platform=windows", msg="longhaul uses system calls of Linux or macOS")

    @run_after("install")
    def install_shared_files(self):
        """Manual pages, completions of three shells, dashboards and the JSON schema."""
        with working_dir(self.stage.source_path):
            share = Executable("packaging/share")
            share(self.prefix.bin.longhaul, self.prefix)

    def test_version(self):
        """The program runs."""
        longhaul = which(self.prefix.bin.longhaul)
        out = longhaul("--version", output=str.split, error=str.split)
        assert str(self.spec.version) in out or self.spec.satisfies("@main")


class CargoBuilder(cargo.CargoBuilder):
    """The sources are a workspace: each program is a package below crates."""

    @property
    def programs(self):
        names = ["longhaul"]
        for variant_name in ("advisor", "lab", "queue"):
            if self.spec.satisfies(f"+{variant_name}"):
                names.append(f"longhaul-{variant_name}")
        return names

    def build(self, pkg, spec, prefix):
        with working_dir(self.build_directory):
            for program in self.programs:
                pkg.module.cargo(
                    "install",
                    "--locked",
                    "--no-track",
                    "--root",
                    "out",
                    "--path",
                    join_path("crates", program),
                    *self.std_build_args,
                    *self.build_args,
                )

    def check(self):
        """The tests want namespaces and servers to talk to; they are run by .ci/run."""
