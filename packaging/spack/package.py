# Recipe for Spack. From the root of the sources, with this folder as packages/gpudays of a repository of yours:
#   spack dev-build gpudays@main
# or, once a release is out, `spack install gpudays`.
import re

from spack.package import *


class Gpudays(CMakePackage):
    """Says how long, how much and with which settings pre-training a model takes on given GPUs, and trains it."""

    # Releases are tags of the sources; a mirror of yours names them: spack develop -p SOURCES gpudays@main
    license("Apache-2.0", checked_by="The gpudays authors")
    executables = ["^gpudays$"]

    version("main")

    variant("mpi", default=True, description="Several ranks, by OpenMPI, which is loaded at run time")
    variant("images", default=False, description="JPEG and PNG as training data")
    variant("figures", default=True, description="gnuplot, which draws the figures of report and survey")

    depends_on("c", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("jansson")
    depends_on("sqlite")
    depends_on("util-linux")  # libsmartcols
    depends_on("openmpi@4:", type="run", when="+mpi")
    depends_on("libjpeg-turbo", type="run", when="+images")
    depends_on("libpng", type="run", when="+images")
    depends_on("gnuplot", type="run", when="+figures")

    generator("ninja")
    conflicts("%gcc@:10", msg="the AMX kernels need gcc 11 or later")

    @classmethod
    def determine_version(cls, exe):
        output = Executable(exe)("--version", output=str, error=str)
        match = re.match(r"gpudays (\S+)", output)
        return match.group(1) if match else None

    def cmake_args(self):
        return [self.define("BUILD_TESTING", False), self.define("GD_WERROR", False)]

    def setup_run_environment(self, env):
        # What is loaded while the program runs.
        if self.spec.satisfies("+mpi"):
            env.set("GPUDAYS_LIBMPI", join_path(self.spec["openmpi"].prefix.lib, "libmpi.so.40"))
        if self.spec.satisfies("+images"):
            for library in ("libjpeg-turbo", "libpng"):
                env.prepend_path("LD_LIBRARY_PATH", self.spec[library].prefix.lib)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.gpudays)("plan", "pythia-410m", "--gpu", "4x3090")
