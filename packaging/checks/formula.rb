# Loads the formula of Homebrew with stand-ins for its DSL, and runs its installation with commands that are only noted:
# ruby packaging/checks/formula.rb FORMULA. Prints the commands; an unknown word or a missing field is an error.
require "pathname"

# What Homebrew's Formula offers of what is used here.
class Formula
  FIELDS = %i[desc homepage url sha256 license head].freeze
  class << self
    attr_reader :fields, :needed

    FIELDS.each { |field| define_method(field) { |value = nil, **named| (@fields ||= {})[field] = value || named } }

    def depends_on(what)
      (@needed ||= []) << (what.is_a?(Hash) ? what.keys.first : what)
    end

    def test(&block) = @test = block
  end

  attr_reader :commands

  def initialize = @commands = []
  def prefix = Pathname("/prefix")
  def bin = prefix/"bin"
  def system(*command) = @commands << command.map(&:to_s)
  def std_cargo_args(path:) = ["--locked", "--root=#{prefix}", "--path=#{path}"]
end

# The system for which it installs.
module OS
  class << self
    attr_accessor :mac

    def mac? = mac
  end
end

load ARGV.fetch(0)
formula = Longhaul
missing = Formula::FIELDS.reject { |field| formula.fields.key?(field) }
abort "the formula lacks #{missing.join(", ")}" unless missing.empty?
abort "Homebrew wants desc below 80 characters" if formula.fields[:desc].length > 80
abort "the formula needs rust and openssl@3" unless (["rust", "openssl@3"] - formula.needed).empty?
[false, true].each do |mac|
  OS.mac = mac
  made = formula.new
  made.install
  puts mac ? "macOS:" : "Linux:"
  made.commands.each { |command| puts command.join(" ") }
end
