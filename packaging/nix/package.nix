# The programs with manual pages, completions, dashboards and the JSON schema, from this checkout. Version and home page
# are those of Cargo.toml.
{
  lib,
  stdenv,
  rustPlatform,
  pkg-config,
  openssl,
}:

let
  workspace = (lib.importTOML ../../Cargo.toml).workspace.package;
in
rustPlatform.buildRustPackage {
  pname = "longhaul";
  inherit (workspace) version;

  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;

  # On macOS longhaul is a client alone.
  cargoBuildFlags = [
    "--package=longhaul"
  ]
  ++ lib.optionals stdenv.hostPlatform.isLinux [
    "--package=longhaul-advisor"
    "--package=longhaul-lab"
    "--package=longhaul-queue"
  ];

  nativeBuildInputs = [ pkg-config ];
  buildInputs = [ openssl ];

  # The tests want namespaces of their own and servers to talk to: .ci/run.
  doCheck = false;

  # A program of another architecture cannot describe itself here.
  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    sh packaging/share $out/bin/longhaul $out
  '';

  meta = {
    description = "Moves large files over long-distance networks at full speed";
    homepage = workspace.repository;
    license = with lib.licenses; [
      asl20
      mit
    ];
    mainProgram = "longhaul";
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
  };
}
