# nix run .#longhaul, nix profile install .#longhaul, nix develop; packaging/nix/package.nix is the package.
{
  description = "Moves large files over long-distance networks at full speed";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      forEach = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = forEach (pkgs: rec {
        longhaul = pkgs.callPackage ./packaging/nix/package.nix { };
        default = longhaul;
      });

      overlays.default = final: _: { longhaul = final.callPackage ./packaging/nix/package.nix { }; };

      devShells = forEach (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ self.packages.${pkgs.stdenv.hostPlatform.system}.longhaul ];
          packages = [
            pkgs.clippy
            pkgs.rustfmt
          ];
        };
      });
    };
}
