# Evaluates packaging/nix/package.nix and flake.nix with stand-ins for nixpkgs: what the package would be built from.
#   nix-instantiate --eval --strict --json packaging/checks/package.nix
let
  lib = {
    importTOML = file: builtins.fromTOML (builtins.readFile file);
    cleanSource = path: path;
    optionalString = condition: text: if condition then text else "";
    licenses = {
      asl20 = "Apache-2.0";
      mit = "MIT";
    };
    optionals = condition: list: if condition then list else [ ];
    platforms.linux = [ "x86_64-linux" ];
    platforms.darwin = [ "aarch64-darwin" ];
    genAttrs =
      names: make:
      builtins.listToAttrs (
        map (name: {
          inherit name;
          value = make name;
        }) names
      );
  };
  platform = system: {
    inherit system;
    canExecute = _: true;
    isLinux = builtins.match ".*-linux" system != null;
  };
  pkgs = system: {
    inherit lib;
    stdenv = {
      buildPlatform = platform system;
      hostPlatform = platform system;
    };
    rustPlatform.buildRustPackage = attributes: attributes;
    pkg-config = "pkg-config";
    openssl = "openssl";
    clippy = "clippy";
    rustfmt = "rustfmt";
    mkShell = shell: shell;
    callPackage =
      file: _:
      let
        make = import file;
      in
      make (builtins.intersectAttrs (builtins.functionArgs make) (pkgs system));
  };
  flake = import ../../flake.nix;
  outputs = flake.outputs {
    self = outputs;
    nixpkgs = {
      inherit lib;
      legacyPackages = lib.genAttrs [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" ] pkgs;
    };
  };
  package = outputs.packages.x86_64-linux.default;
in
{
  inherit (package) pname version cargoBuildFlags;
  inherit (package.meta) homepage license mainProgram;
  lockFile = builtins.pathExists package.cargoLock.lockFile;
  shell = outputs.devShells.aarch64-linux.default.packages;
  macos = outputs.packages.aarch64-darwin.default.cargoBuildFlags;
  install = package.postInstall;
}
