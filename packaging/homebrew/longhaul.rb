# Formula for a tap: brew install ./packaging/homebrew/longhaul.rb builds from the release's source archive.
# packaging/recipes sets url and sha256; packaging/check loads the formula.
class Longhaul < Formula
  desc "Moves large files over long-distance networks at full speed"
  homepage "https://git.example.org/longhaul/longhaul"
  url "https://git.example.org/longhaul/longhaul/archive/refs/tags/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["Apache-2.0", "MIT"]
  head "https://git.example.org/longhaul/longhaul.git", branch: "main"

  depends_on "pkgconf" => :build
  depends_on "rust" => :build
  depends_on "openssl@3"

  # On macOS longhaul is a client alone.
  def programs
    OS.mac? ? %w[longhaul] : %w[longhaul longhaul-advisor longhaul-lab longhaul-queue]
  end

  def install
    programs.each do |program|
      system "cargo", "install", *std_cargo_args(path: "crates/#{program}")
    end
    # Manual pages, completions of three shells, dashboards and the JSON schema.
    system "packaging/share", bin/"longhaul", prefix
  end

  test do
    (testpath/"from").write "hello"
    system bin/"longhaul", "cp", "--no-history", testpath/"from", testpath/"to"
    assert_equal "hello", (testpath/"to").read
    assert_match version.to_s, shell_output("#{bin}/#{programs.last} --version")
  end
end
