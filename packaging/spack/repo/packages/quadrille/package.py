# SPDX-License-Identifier: Apache-2.0
# With a copy of this repository:  spack repo add packaging/spack/repo
#                                  spack dev-build quadrille@main        (or: spack develop --path $PWD quadrille@main)

from spack.package import *


class Quadrille(MesonPackage):
    """Matrix products of neural-network training on a 4D grid of processes: a
    C library, a command that plans and measures, and a model of machines."""

    homepage = "https://quadrille.invalid"
    git = "https://quadrille.invalid/quadrille.git"

    license("Apache-2.0", checked_by="Quadrille Developers")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("mpi", default=True, description="Run on more than one process")
    variant("blas", default=True, description="Products through OpenBLAS instead of plain C")
    variant("hwloc", default=True, description="Read machines with hwloc instead of /sys")
    variant("onednn", default=False, description="bf16 products through oneDNN")
    variant("zfp", default=False, description="Codecs of zfp")
    variant("cuda", default=False, description="Build the plugin for GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("jansson@2.10:")
    depends_on("zlib-api")
    depends_on("mpich", when="+mpi")
    depends_on("openblas", when="+blas")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("onednn@2.6:", when="+onednn")
    depends_on("zfp@0.5.5:", when="+zfp")
    depends_on("cuda@12.8:", when="+cuda")
    depends_on("nccl", when="+cuda")

    def setup_build_environment(self, env):
        if self.spec.satisfies("+cuda"):
            env.set("CUDA_HOME", self.spec["cuda"].prefix)

    def meson_args(self):
        def feature(name, variant=None):
            state = "enabled" if self.spec.satisfies("+" + (variant or name)) else "disabled"
            return f"-D{name}={state}"

        args = [feature(name) for name in ("blas", "hwloc", "onednn", "zfp", "cuda")]
        args.append("-Dmpi=" + ("mpich" if self.spec.satisfies("+mpi") else "none"))
        args += ["-Dtests=false", "-Dwerror=false"]
        if self.spec.satisfies("+cuda"):
            args.append(f"-Dnccl={self.spec['nccl'].prefix}")
        return args

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(join_path(self.prefix.bin, "quadrille"))("verify", "-n", "2", "--cases", "1")
